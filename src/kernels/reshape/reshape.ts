import { ShapeError } from '../../util/errors.ts'
import { countElements, formatShape, type Shape, tensorType } from '../../util/shape.ts'
import { defineOp, type Op } from '../op.ts'

/** The new shape, with the same number of elements. */
export interface ReshapeAttrs {
  readonly shape: Shape
}

/** y = x under another shape: the same memory, nothing to compute. */
export const reshape: Op<ReshapeAttrs> = defineOp<ReshapeAttrs>({
  name: 'reshape',
  isView: true,
  infer([x], { shape }) {
    if (countElements(x.shape) !== countElements(shape)) {
      throw new ShapeError(
        'shape.mismatch',
        `reshape: cannot reshape ${formatShape(x.shape)} of ${countElements(x.shape)} elements to ${formatShape(shape)}. Check the sizes.`,
      )
    }
    return [tensorType(shape, x.dtype)]
  },
  variants: [{ name: 'naive', lower: () => ({ dispatches: [] }) }],
  gradient(context) {
    const [dy] = context.outputGradients
    return dy ? context.emit(reshape, [dy], { shape: context.inputs[0].type.shape }) : [undefined]
  },
  reference: ([x]) => [x.slice()],
  tolerance: { absolute: 0, relative: 0, because: 'the same memory' },
  cases: [
    { name: '3x5 to 15', inputs: [tensorType([3, 5])], attrs: { shape: [15] } },
    { name: 'one element to a scalar', inputs: [tensorType([1])], attrs: { shape: [] } },
    { name: 'nothing', inputs: [tensorType([0, 3])], attrs: { shape: [3, 0] } },
    { name: 'huge', inputs: [tensorType([6])], attrs: { shape: [2, 3] }, fill: 'huge' },
  ],
})
