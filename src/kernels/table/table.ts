import { tensorType } from '../../util/shape.ts'
import { eachElement, oneVariant } from '../elements.ts'
import { defineOp, type Op } from '../op.ts'
import { writes } from '../shader.ts'

/** Values that one table may have: they stand in the shader. */
export const longestTable = 1024

export interface TableAttrs {
  /** Integers of 32 bits, at most `longestTable`. */
  readonly values: readonly number[]
}

/** y = integers known when the program is made, in any order, written by the device. shape: -> i32 [N] */
export const table: Op<TableAttrs> = defineOp<TableAttrs>({
  name: 'table',
  infer: (_, { values }) => [tensorType([values.length], 'i32')],
  variants: oneVariant(({ attrs: { values } }) =>
    eachElement({
      label: 'table',
      count: values.length,
      bindings: [writes('y', { out: 0 }, 'i32')],
      main: [
        `var values = array<i32, ${values.length}>(${values.join(', ')});`,
        'y[i] = values[i];',
      ],
    }),
  ),
  reference: (_, { attrs: { values } }) => [Int32Array.from(values)],
  tolerance: { absolute: 0, relative: 0, because: 'a copy' },
  cases: [
    tableCase('several', [3, 1, 4, 1, 5]),
    tableCase('one element', [7]),
    tableCase('nothing', []),
    { ...tableCase('huge', [2 ** 31 - 1, 1 - 2 ** 31, 0]), fill: 'huge' },
    tableCase(
      'as many as there may be',
      Array.from({ length: longestTable }, (_, i) => (i * 37) % 101),
    ),
  ],
})

function tableCase(name: string, values: readonly number[]) {
  return { name, inputs: [], attrs: { values } }
}
