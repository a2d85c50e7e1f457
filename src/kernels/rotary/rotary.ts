import { ShapeError } from '../../util/errors.ts'
import { countElements, formatShape, type Shape, type TensorType } from '../../util/shape.ts'
import { eachElement, oneVariant } from '../elements.ts'
import { type Case, caseOf, defineOp, type Op } from '../op.ts'
import { reads, writes } from '../shader.ts'
import wgsl from './rotary.wgsl?raw'

export interface RotaryAttrs {
  /** Elements of a row. */
  readonly width: number
  /** Rows of one position, and how many of them are turned. */
  readonly inner: number
  readonly turned: number
  readonly positions: number
  /** True if pairs are neighbours; else element i pairs with i + width / 2. */
  readonly isInterleaved: boolean
  /** True if rows are turned back. */
  readonly isInverse: boolean
}

const rowsOf = (x: TensorType, { width }: RotaryAttrs) => countElements(x.shape) / width

const attrsOf = (
  width: number,
  positions: number,
  more: Partial<RotaryAttrs> = {},
): RotaryAttrs => ({
  width,
  inner: 1,
  turned: 1,
  positions,
  isInterleaved: false,
  isInverse: false,
  ...more,
})

/** y = x with pairs of elements turned by their position's angles. Inputs: x, table [>= positions, width / 2, 2] of (cos, sin). */
export const rotary: Op<RotaryAttrs> = defineOp<RotaryAttrs>({
  name: 'rotary',
  infer([x, table], attrs) {
    const { width, inner, positions } = attrs
    const rows = rowsOf(x, attrs)
    if (
      x.dtype !== 'f32' ||
      table.dtype !== 'f32' ||
      width % 2 !== 0 ||
      rows % (inner * positions) !== 0 ||
      countElements(table.shape) < positions * width
    ) {
      throw new ShapeError(
        'shape.mismatch',
        `rotary: expected f32 rows of an even width ${width} at ${positions} positions and a table of at least ${positions}, got ${x.dtype}${formatShape(x.shape)} and ${table.dtype}${formatShape(table.shape)}. Create the table for more positions.`,
      )
    }
    return [x]
  },
  variants: oneVariant(({ inputs: [x], attrs }) =>
    eachElement({
      label: 'rotary',
      count: countElements(x.shape) / 2,
      bindings: [
        reads('x', { in: 0 }),
        reads('table', { in: 1 }, 'vec2<f32>'),
        writes('y', { out: 0 }),
      ],
      constants: {
        HALF: attrs.width / 2,
        INNER: attrs.inner,
        TURNED: attrs.turned,
        POSITIONS: attrs.positions,
        PAIR: Number(attrs.isInterleaved),
        SIGN: { f32: attrs.isInverse ? -1 : 1 },
      },
      functions: wgsl,
      main: ['element(i);'],
    }),
  ),
  gradient(context) {
    const [dy] = context.outputGradients
    const { inputs, attrs } = context
    if (!dy || !context.needs(0)) return []
    return context.emit(rotary, [dy, inputs[1]], { ...attrs, isInverse: !attrs.isInverse })
  },
  reference([x, table], { inputs: [type], attrs }) {
    const { width, inner, turned, positions, isInterleaved, isInverse } = attrs
    const half = width / 2
    const y = Float64Array.from(x)
    for (let row = 0; row < rowsOf(type, attrs); row++) {
      if (row % inner >= turned) continue
      const position = Math.floor(row / inner) % positions
      for (let pair = 0; pair < half; pair++) {
        const first = row * width + (isInterleaved ? 2 * pair : pair)
        const second = first + (isInterleaved ? 1 : half)
        const cos = table[(position * half + pair) * 2]
        const sin = table[(position * half + pair) * 2 + 1] * (isInverse ? -1 : 1)
        y[first] = x[first] * cos - x[second] * sin
        y[second] = x[first] * sin + x[second] * cos
      }
    }
    return [y]
  },
  tolerance: { absolute: 1e-6, relative: 1e-6, because: 'two products and a sum that may cancel' },
  cases: [
    turnCase('one pair', [2], [1, 1, 2], attrsOf(2, 1)),
    turnCase('heads 2x3x5, width 6, a longer table', [2, 3, 5, 6], [9, 3, 2], attrsOf(6, 5)),
    turnCase('interleaved', [2, 7, 4], [7, 2, 2], attrsOf(4, 7, { isInterleaved: true })),
    turnCase(
      'packed 2x3, 2 heads of 4, values stay',
      [6, 24],
      [3, 2, 2],
      attrsOf(4, 3, { inner: 6, turned: 4, isInverse: true }),
    ),
    turnCase('nothing', [0, 3, 4], [3, 2, 2], attrsOf(4, 3)),
    { ...turnCase('huge', [3, 8], [3, 4, 2], attrsOf(8, 3)), fill: 'huge' },
  ],
})

function turnCase(name: string, x: Shape, table: Shape, attrs: RotaryAttrs): Case<RotaryAttrs> {
  return caseOf(name, [x, table], attrs)
}
