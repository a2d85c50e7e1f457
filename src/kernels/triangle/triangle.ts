import { ShapeError } from '../../util/errors.ts'
import { quoted } from '../../util/kind-of.ts'
import { countElements, type DType, formatShape, type Shape, tensorType } from '../../util/shape.ts'
import { eachElement, oneVariant } from '../elements.ts'
import { type Case, defineOp, type Op } from '../op.ts'
import { reads, writes } from '../shader.ts'
import { emptyLike } from '../view/region.ts'

/** Which side of which diagonal stays: column - row >= diagonal (`isUpper`) or <= diagonal. */
export interface TriangleAttrs {
  readonly diagonal: number
  readonly isUpper: boolean
}

/** y = the upper or lower triangle of the last two axes of x, 0 elsewhere. */
export const triangle: Op<TriangleAttrs> = defineOp<TriangleAttrs>({
  name: 'triangle',
  infer([x], { diagonal }) {
    if (x.shape.length < 2 || !Number.isInteger(diagonal)) {
      throw new ShapeError(
        'shape.unsupported',
        `triangle: expected at least 2 dimensions and an integer diagonal, got ${formatShape(x.shape)} and ${quoted(diagonal)}. Reshape the tensor.`,
      )
    }
    return [x]
  },
  variants: oneVariant(({ inputs: [{ shape }], attrs: { diagonal, isUpper } }) => {
    const [rows, columns] = shape.slice(-2)
    return eachElement({
      label: isUpper ? 'triu' : 'tril',
      count: countElements(shape),
      bindings: [reads('x', { in: 0 }, 'u32'), writes('y', { out: 0 }, 'u32')],
      main: [
        `let row = i32(i / ${columns}u % ${rows}u);`,
        `let column = i32(i % ${columns}u);`,
        `y[i] = select(0u, x[i], column - row ${isUpper ? '>=' : '<='} ${diagonal});`,
      ],
    })
  }),
  gradient(context) {
    const [dy] = context.outputGradients
    return [dy && context.emit(triangle, [dy], context.attrs)[0]]
  },
  reference([x], { inputs: [{ shape, dtype }], attrs: { diagonal, isUpper } }) {
    const [rows, columns] = shape.slice(-2)
    const y = emptyLike(dtype, x.length)
    for (let i = 0; i < y.length; i++) {
      const off = (i % columns) - (Math.floor(i / columns) % rows)
      y[i] = (isUpper ? off >= diagonal : off <= diagonal) ? x[i] : 0
    }
    return [y]
  },
  tolerance: { absolute: 0, relative: 0, because: 'a copy' },
  cases: [
    triangleCase('lower', [5, 7], 0, false),
    triangleCase('upper', [7, 5], 0, true),
    triangleCase('lower, above the diagonal, a batch', [3, 4, 6], 2, false),
    triangleCase('upper, below the diagonal', [9, 9], -3, true),
    triangleCase('integers', [4, 4], 1, true, 'i32'),
    triangleCase('one element', [1, 1], 0, false),
    triangleCase('nothing', [0, 4], 0, false),
    { ...triangleCase('huge', [6, 6], 0, true), fill: 'huge' },
  ],
})

function triangleCase(
  name: string,
  shape: Shape,
  diagonal: number,
  isUpper: boolean,
  dtype: DType = 'f32',
): Case<TriangleAttrs> {
  return { name, inputs: [tensorType(shape, dtype)], attrs: { diagonal, isUpper } }
}
