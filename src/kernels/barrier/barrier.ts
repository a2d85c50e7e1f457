import { tensorType } from '../../util/shape.ts'
import { defineOp, type Op } from '../op.ts'

/** Which recomputation the barrier stands before: two barriers of different numbers are never the same value. */
export interface BarrierAttrs {
  readonly copy: number
}

/**
 * y = x in the same memory: a value that no rewrite takes for x.
 *
 * What a checkpointed region recomputes reads its inputs through barriers. Its nodes would otherwise be equal to the region's own in op,
 * attrs and inputs, and a rewrite that merges equal nodes would undo the checkpoint.
 * source: the same device is optimization_barrier in XLA.
 */
export const barrier: Op<BarrierAttrs> = defineOp<BarrierAttrs>({
  name: 'barrier',
  isView: true,
  infer: ([x]) => [x],
  variants: [{ name: 'naive', lower: () => ({ dispatches: [] }) }],
  gradient: ({ outputGradients: [dy] }) => [dy],
  reference: ([x]) => [x.slice()],
  tolerance: { absolute: 0, relative: 0, because: 'the same memory' },
  cases: [
    { name: 'one element', inputs: [tensorType([1])], attrs: { copy: 1 } },
    { name: '3x5', inputs: [tensorType([3, 5])], attrs: { copy: 1 } },
    { name: 'nothing', inputs: [tensorType([0, 3])], attrs: { copy: 2 } },
    { name: 'huge', inputs: [tensorType([6])], attrs: { copy: 3 }, fill: 'huge' },
  ],
})
