import { invariant, ShapeError } from '../../util/errors.ts'
import {
  countElements,
  formatShape,
  type Shape,
  type TensorType,
  tensorType,
} from '../../util/shape.ts'
import { constant } from '../constant/constant.ts'
import { eachElement } from '../elements.ts'
import { naiveOr } from '../naive-or.ts'
import { defineOp, type HostArray, type Lowering, type Op, type OpCall } from '../op.ts'
import { reads, writes } from '../shader.ts'
import { emptyLike } from '../view/region.ts'

// cat and split are each other's gradient, so they share a file. One dispatch moves up to 7 parts: a stage binds 8 buffers.

const partsPerDispatch = 7

export interface CatAttrs {
  readonly axis: number
}

/** Cuts `axis` into parts of these sizes, in order. */
export interface SplitAttrs {
  readonly axis: number
  readonly sizes: readonly number[]
}

/** The elements that one step along the axes before `axis` covers in each part, and how many such steps there are. */
function rowsOf(whole: Shape, axis: number, sizes: readonly number[]) {
  const inner = countElements(whole.slice(axis + 1))
  return { outer: countElements(whole.slice(0, axis)), widths: sizes.map((size) => size * inner) }
}

const sizesAlong = (types: readonly TensorType[], axis: number) =>
  types.map(({ shape }) => shape[axis])

/** Copies between a whole tensor of `outer` rows and its parts, in either direction. */
function lower(
  op: 'cat' | 'split',
  whole: Shape,
  axis: number,
  sizes: readonly number[],
  isWide: boolean,
): Lowering {
  const per = isWide ? 4 : 1
  const { outer, widths } = rowsOf(whole, axis, sizes)
  const row = widths.reduce((sum, width) => sum + width, 0)
  const element = isWide ? 'vec4<u32>' : 'u32'
  let column = 0
  const parts = widths
    .map((width, index) => {
      const part = { index, width: width / per, column: column / per }
      column += width
      return part
    })
    .filter(({ width }) => width > 0)
  const groups = Array.from({ length: Math.ceil(parts.length / partsPerDispatch) }, (_, n) =>
    parts.slice(n * partsPerDispatch, (n + 1) * partsPerDispatch),
  )
  return {
    dispatches: groups.flatMap((group) => {
      const first = group[0].column
      const width = group.reduce((sum, part) => sum + part.width, 0)
      const lines = [
        `let at = i / ${width}u;`,
        `let column = i % ${width}u;`,
        `let whole = at * ${row / per}u + column + ${first}u;`,
      ]
      group.forEach((part, n) => {
        const own = `part${n}[at * ${part.width}u + column - ${part.column - first}u]`
        const move =
          op === 'cat' ? `whole_tensor[whole] = ${own};` : `${own} = whole_tensor[whole];`
        const isLast = n === group.length - 1
        const condition = `if (column < ${part.column - first + part.width}u) `
        lines.push(`${n === 0 ? '' : 'else '}${isLast && n > 0 ? '' : condition}{ ${move} }`)
      })
      return eachElement({
        label: `${op} ${group.length} parts`,
        count: outer * width,
        bindings:
          op === 'cat'
            ? [
                ...group.map((part, n) => reads(`part${n}`, { in: part.index }, element)),
                writes('whole_tensor', { out: 0 }, element),
              ]
            : [
                reads('whole_tensor', { in: 0 }, element),
                ...group.map((part, n) => writes(`part${n}`, { out: part.index }, element)),
              ],
        main: lines,
      })
    }),
  }
}

const canBeWide = (whole: Shape, axis: number, sizes: readonly number[]) =>
  rowsOf(whole, axis, sizes).widths.every((width) => width % 4 === 0)

/** Copies on the host between the whole tensor and its parts. */
function move(
  whole: HostArray,
  shape: Shape,
  axis: number,
  parts: readonly HostArray[],
  sizes: readonly number[],
  direction: 'cat' | 'split',
): void {
  const { outer, widths } = rowsOf(shape, axis, sizes)
  let at = 0
  for (let row = 0; row < outer; row++) {
    widths.forEach((width, n) => {
      for (let i = 0; i < width; i++, at++) {
        if (direction === 'cat') whole[at] = parts[n][row * width + i]
        else parts[n][row * width + i] = whole[at]
      }
    })
  }
}

const catCall = ({ inputs, outputs, attrs: { axis } }: OpCall<CatAttrs>) =>
  [outputs[0].shape, axis, sizesAlong(inputs, axis)] as const
const splitCall = ({ inputs, attrs: { axis, sizes } }: OpCall<SplitAttrs>) =>
  [inputs[0].shape, axis, sizes] as const

const exact = { absolute: 0, relative: 0, because: 'a copy' }

/** y = the inputs one after the other along an axis. */
export const cat: Op<CatAttrs> = defineOp<CatAttrs>({
  name: 'cat',
  infer(inputs, { axis }) {
    const [first] = inputs
    const other = inputs.find(
      ({ shape, dtype }) =>
        dtype !== first.dtype ||
        shape.length !== first.shape.length ||
        shape.some((size, d) => d !== axis && size !== first.shape[d]),
    )
    if (!first || other || !(axis in first.shape)) {
      throw new ShapeError(
        'shape.mismatch',
        `cat: tensors must agree in dtype and in every dimension except ${axis}, got ${inputs.map(({ shape, dtype }) => `${dtype}${formatShape(shape)}`).join(', ') || 'none'}. Reshape or convert them.`,
      )
    }
    const total = sizesAlong(inputs, axis).reduce((sum, size) => sum + size, 0)
    return [
      tensorType(
        first.shape.map((size, d) => (d === axis ? total : size)),
        first.dtype,
      ),
    ]
  },
  ...naiveOr(
    'wide',
    (call) => canBeWide(...catCall(call)),
    (call, isWide) => lower('cat', ...catCall(call), isWide),
  ),
  gradient(context) {
    const [dy] = context.outputGradients
    if (!dy) return context.inputs.map(() => undefined)
    const { axis } = context.attrs
    const types = context.inputs.map(({ type }) => type)
    return context.emit(split, [dy], { axis, sizes: sizesAlong(types, axis) })
  },
  reference(inputs, { inputs: types, outputs: [{ shape, dtype }], attrs: { axis } }) {
    const y = emptyLike(dtype, countElements(shape))
    move(y, shape, axis, inputs, sizesAlong(types, axis), 'cat')
    return [y]
  },
  tolerance: exact,
  cases: [
    catCase('columns', 1, [
      [5, 3],
      [5, 1],
      [5, 6],
    ]),
    catCase('rows', 0, [
      [2, 7],
      [3, 7],
    ]),
    catCase('by fours', 1, [
      [6, 4],
      [6, 8],
    ]),
    catCase('the middle axis', 1, [
      [2, 3, 5],
      [2, 1, 5],
    ]),
    catCase(
      'nine parts',
      0,
      Array.from({ length: 9 }, (_, n) => [n + 1, 3]),
    ),
    catCase('an empty part', 0, [
      [2, 3],
      [0, 3],
      [1, 3],
    ]),
    catCase('one element', 0, [[1]]),
    catCase('nothing', 0, [
      [0, 2],
      [0, 2],
    ]),
    { ...catCase('huge', 0, [[3], [4]]), fill: 'huge' },
    {
      name: 'integers',
      inputs: [tensorType([2, 3], 'i32'), tensorType([2, 2], 'i32')],
      attrs: { axis: 1 },
    },
  ],
})

function catCase(name: string, axis: number, shapes: readonly Shape[]) {
  return { name, inputs: shapes.map((shape) => tensorType(shape)), attrs: { axis } }
}

/** One output for each part of x along an axis. */
export const split: Op<SplitAttrs> = defineOp<SplitAttrs>({
  name: 'split',
  infer([x], { axis, sizes }) {
    const total = sizes.reduce((sum, size) => sum + size, 0)
    if (!(axis in x.shape) || total !== x.shape[axis] || sizes.some((size) => size < 0)) {
      throw new ShapeError(
        'shape.mismatch',
        `split: size must add up to the size of dimension ${axis}, got ${formatShape(sizes)} for ${formatShape(x.shape)}. Check the sizes.`,
      )
    }
    return sizes.map((size) =>
      tensorType(
        x.shape.map((own, d) => (d === axis ? size : own)),
        x.dtype,
      ),
    )
  },
  ...naiveOr(
    'wide',
    (call) => canBeWide(...splitCall(call)),
    (call, isWide) => lower('split', ...splitCall(call), isWide),
  ),
  gradient(context) {
    const { axis } = context.attrs
    invariant(context.outputs.length > 0, () => 'split: no parts')
    const parts = context.outputs.map(
      ({ type: { shape, dtype } }, n) =>
        context.outputGradients[n] ??
        context.emit(constant, [], { shape, dtype, start: 0, step: 0 })[0],
    )
    return parts.length === 1 ? parts : context.emit(cat, parts, { axis })
  },
  reference([x], { inputs: [{ shape, dtype }], outputs, attrs: { axis, sizes } }) {
    const parts = outputs.map((type) => emptyLike(dtype, countElements(type.shape)))
    move(x, shape, axis, parts, sizes, 'split')
    return parts
  },
  tolerance: exact,
  cases: [
    { name: 'columns', inputs: [tensorType([5, 10])], attrs: { axis: 1, sizes: [3, 1, 6] } },
    { name: 'by fours', inputs: [tensorType([6, 24])], attrs: { axis: 1, sizes: [8, 8, 8] } },
    { name: 'rows', inputs: [tensorType([7, 3])], attrs: { axis: 0, sizes: [2, 5] } },
    {
      name: 'nine parts',
      inputs: [tensorType([2, 18])],
      attrs: { axis: 1, sizes: [2, 2, 2, 2, 2, 2, 2, 2, 2] },
    },
    { name: 'an empty part', inputs: [tensorType([3])], attrs: { axis: 0, sizes: [1, 0, 2] } },
    { name: 'one element', inputs: [tensorType([1])], attrs: { axis: 0, sizes: [1] } },
    { name: 'nothing', inputs: [tensorType([0, 4])], attrs: { axis: 1, sizes: [1, 3] } },
    { name: 'huge', inputs: [tensorType([9])], attrs: { axis: 0, sizes: [4, 5] }, fill: 'huge' },
  ],
})
