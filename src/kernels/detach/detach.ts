import { tensorType } from '../../util/shape.ts'
import { defineOp, type Op } from '../op.ts'

/** y = x as a constant: the same memory, and no gradient passes. */
export const detach: Op<object> = defineOp<object>({
  name: 'detach',
  isView: true,
  infer: ([x]) => [x],
  variants: [{ name: 'naive', lower: () => ({ dispatches: [] }) }],
  reference: ([x]) => [x.slice()],
  tolerance: { absolute: 0, relative: 0, because: 'the same memory' },
  gradient: () => [undefined],
  cases: [
    { name: 'one element', inputs: [tensorType([1])], attrs: {}, fill: 'ties' },
    { name: 'nothing', inputs: [tensorType([0, 3])], attrs: {}, fill: 'ties' },
    { name: 'huge', inputs: [tensorType([7])], attrs: {}, fill: 'huge' },
  ],
})
