import { ShapeError } from '../../util/errors.ts'
import { countElements, formatShape, type Shape, sameShape, tensorType } from '../../util/shape.ts'
import { eachElement, oneVariant } from '../elements.ts'
import { type Case, caseOf, defineOp, type Op } from '../op.ts'
import { reads, updates } from '../shader.ts'

type NoAttrs = Readonly<Record<string, never>>

const rowsCase = (name: string, target: Shape, rows: number): Case<NoAttrs> => {
  const source = [rows, ...target.slice(1)]
  const start = tensorType([1], 'i32')
  return { ...caseOf(name, [target, source, start], {}), integerBelow: { 2: target[0] || 1 } }
}

/**
 * target after the rows of source have replaced those from row `start` on, in the memory of target. Rows behind its last are left out.
 *
 * shape: target [R, ..], source [n, ..], start i32[1] -> [R, ..]
 */
export const writeRows: Op<NoAttrs> = defineOp<NoAttrs>({
  name: 'writeRows',
  isInPlace: true,
  updates: [0],
  infer([target, source, start]) {
    const isFloat = target.dtype === 'f32' && source.dtype === 'f32' && start.dtype === 'i32'
    const hasRows =
      target.shape.length > 0 && sameShape(target.shape.slice(1), source.shape.slice(1))
    if (isFloat && hasRows && sameShape(start.shape, [1])) return [target]
    throw new ShapeError(
      'shape.mismatch',
      `writeRows: expected f32 target and source with rows of one shape, and start i32[1], got ${[target, source, start].map(({ dtype, shape }) => `${dtype}${formatShape(shape)}`).join(', ')}. Reshape the source.`,
    )
  },
  variants: oneVariant(({ inputs: [target, source] }) =>
    eachElement({
      label: 'writeRows',
      count: countElements(source.shape),
      bindings: [
        reads('source', { in: 1 }),
        reads('start', { in: 2 }, 'i32'),
        updates('rows', { in: 0 }),
      ],
      constants: { ALL: countElements(target.shape), WIDTH: countElements(target.shape.slice(1)) },
      main: ['let at = u32(start[0]) * WIDTH + i;', 'if (at < ALL) { rows[at] = source[i]; }'],
    }),
  ),
  reference([target, source, [start]], { inputs: [type] }) {
    const width = countElements(type.shape.slice(1))
    for (let i = 0; i < source.length && start * width + i < target.length; i++)
      target[start * width + i] = source[i]
    return [target]
  },
  tolerance: { absolute: 0, relative: 0, because: 'copies' },
  cases: [
    rowsCase('one element', [1], 1),
    rowsCase('one row of 5x3', [5, 3], 1),
    rowsCase('4 rows of 70x2x8, perhaps too many', [70, 2, 8], 4),
    rowsCase('more rows than there are', [3, 5], 9),
    rowsCase('no rows', [4, 3], 0),
    { ...rowsCase('huge', [6, 2], 2), fill: 'huge' },
    { ...rowsCase('ties', [6, 2], 3), fill: 'ties' },
  ],
})
