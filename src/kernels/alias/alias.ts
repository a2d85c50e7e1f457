import { tensorType } from '../../util/shape.ts'
import { defineOp, type Op } from '../op.ts'

/**
 * y = x in the same memory: a separate value in the traced graph, with its own gradient.
 *
 * Backward hooks of modules stand on it. A rewrite takes it away, so that it parts no chain.
 */
export const alias: Op<object> = defineOp<object>({
  name: 'alias',
  isView: true,
  infer: ([x]) => [x],
  variants: [{ name: 'naive', lower: () => ({ dispatches: [] }) }],
  gradient: ({ outputGradients: [dy] }) => [dy],
  reference: ([x]) => [x.slice()],
  tolerance: { absolute: 0, relative: 0, because: 'the same memory' },
  cases: [
    { name: 'one element', inputs: [tensorType([1])], attrs: {} },
    { name: '3x5', inputs: [tensorType([3, 5])], attrs: {} },
    { name: 'nothing', inputs: [tensorType([0, 3])], attrs: {} },
    { name: 'huge', inputs: [tensorType([6])], attrs: {}, fill: 'huge' },
    { name: 'ties', inputs: [tensorType([7])], attrs: {}, fill: 'ties' },
  ],
})
