import { ShapeError } from '../../util/errors.ts'
import { quoted } from '../../util/kind-of.ts'
import { countElements, formatShape, type Shape, tensorType } from '../../util/shape.ts'
import { eachFloat, oneVariant } from '../elements.ts'
import { type Case, defineOp, type Op, type OpCall } from '../op.ts'
import { aroundAxis } from '../reduce/shapes.ts'
import { firstOf, type RowKernel, rowVariants } from '../rows.ts'
import { reads, writes } from '../shader.ts'
import gradBody from './top-k-grad.wgsl?raw'

/** The k first of each row along `axis`, counted from 0: the largest, or the smallest. */
export interface TopKAttrs {
  readonly axis: number
  readonly k: number
  readonly isLargest: boolean
}

const rowsOf = ({ inputs, attrs }: OpCall<TopKAttrs>) => aroundAxis(inputs[0].shape, attrs.axis)

/** WGSL that makes bits of a float an unsigned integer of the same order; -0 counts as 0, NaN as the largest. */
const orderWgsl = `fn order_of(bits: u32) -> u32 {
  if ((bits & 0x7fffffffu) > 0x7f800000u) { return 0xffffffffu; }
  if ((bits & 0x7fffffffu) == 0u) { return 0x80000000u; }
  return select(bits | 0x80000000u, ~bits, (bits & 0x80000000u) != 0u);
}`

/** NaN is above every number; as the one smallest (`min`) it comes first all the same, so that it shows. */
function keyWgsl({ inputs: [{ dtype }], attrs: { isLargest, k } }: OpCall<TopKAttrs>): string {
  if (dtype === 'i32') return `return ${isLargest ? '' : '~'}(bits ^ 0x80000000u);`
  if (isLargest) return 'return order_of(bits);'
  const key = k === 1 ? 'select(~order, 0xffffffffu, order == 0xffffffffu)' : '~order'
  return `let order = order_of(bits); return ${key};`
}

/** k reductions of a row to (key, place): the largest key, then the largest of those after it; of equal keys the lower place comes first. */
function kernelOf(call: OpCall<TopKAttrs>): Omit<RowKernel, 'rows' | 'lanes'> {
  const { k } = call.attrs
  const { reduced, inner } = rowsOf(call)
  const nowhere = `vec2<u32>(0u, ${reduced}u)`
  const join = {
    type: 'vec2<u32>',
    start: nowhere,
    by: 'select(a, b, b.x > a.x || (b.x == a.x && b.y < a.y))',
  }
  return {
    label: `topK ${k}`,
    bindings: [
      reads('x', { in: 0 }, 'u32'),
      writes('values', { out: 0 }, 'u32'),
      writes('indices', { out: 1 }, 'i32'),
    ],
    functions: `${orderWgsl}
fn key_of(bits: u32) -> u32 { ${keyWgsl(call)} }
fn after(last: vec2<u32>, is_first: bool, own: vec2<u32>) -> vec2<u32> {
  return select(${nowhere}, own, is_first || own.x < last.x || (own.x == last.x && own.y > last.y));
}`,
    reductions: [{ name: 'best', join, of: 'after(last, j == 0u, vec2<u32>(key_of(x[at]), c))' }],
    once: [
      `let put = ${firstOf({ outer: 0, reduced: k, inner })} + j * ${inner}u;`,
      `values[put] = x[first + best.y * ${inner}u];`,
      'indices[put] = i32(best.y);',
    ],
    within: (lines) => [
      'var last = vec2<u32>(0u, 0u);',
      `for (var j = 0u; j < ${k}u; j++) {`,
      ...lines.map((line) => `  ${line}`),
      '  last = best;',
      '}',
    ],
  }
}

const axisCase = (
  name: string,
  shape: Shape,
  axis: number,
  k: number,
  more: Partial<Case<TopKAttrs>> & { isSmallest?: boolean } = {},
): Case<TopKAttrs> => {
  const { isSmallest = false, ...rest } = more
  return { name, inputs: [tensorType(shape)], attrs: { axis, k, isLargest: !isSmallest }, ...rest }
}

const integers = (shape: Shape) => ({
  inputs: [tensorType(shape, 'i32')],
  integerBelow: { 0: 2 ** 31 },
})

/** Above every f32 and below NaN's key; infinities count as this. */
const largestKey = 1e300

/**
 * The k largest or smallest elements along an axis, in order, and their indices.
 *
 * shape: [.., n, ..] of f32 or i32 -> values of the same and indices i32, both [.., k, ..]
 * order: of equal elements the one with the lower index comes first.
 */
export const topK: Op<TopKAttrs> = defineOp<TopKAttrs>({
  name: 'topK',
  infer([x], { axis, k }) {
    const isKnown = x.dtype === 'f32' || x.dtype === 'i32'
    if (!isKnown || !Number.isInteger(k) || k < 0 || !(k <= x.shape[axis])) {
      throw new ShapeError(
        'shape.unsupported',
        `topk: k must be from 0 to the size of the dimension of an f32 or i32 tensor, got k ${quoted(k)} along dimension ${axis} of ${x.dtype}${formatShape(x.shape)}. Check k and the dimension.`,
      )
    }
    const shape = x.shape.map((d, n) => (n === axis ? k : d))
    return [tensorType(shape, x.dtype), tensorType(shape, 'i32')]
  },
  ...rowVariants(rowsOf, kernelOf),
  gradient({ inputs: [x], outputs: [, indices], outputGradients: [dy], attrs, emit }) {
    if (!dy) return [undefined]
    return emit(topKGrad, [dy, indices], { axis: attrs.axis, size: x.type.shape[attrs.axis] })
  },
  reference([x], call) {
    const { k, isLargest } = call.attrs
    // NaN is the largest, and the one smallest too. Subtracting infinities would give no order.
    const isNaNFirst = isLargest || k === 1
    const keyOf = (value: number): number => {
      if (Number.isNaN(value)) return isNaNFirst ? Number.MAX_VALUE : -Number.MAX_VALUE
      return Math.max(-largestKey, Math.min(largestKey, isLargest ? value : -value))
    }
    const { outer, reduced, inner } = rowsOf(call)
    const isInteger = call.inputs[0].dtype === 'i32'
    const values = new (isInteger ? Int32Array : Float64Array)(outer * k * inner)
    const indices = new Int32Array(outer * k * inner)
    for (let row = 0; row < outer * inner; row++) {
      const [o, n] = [Math.floor(row / inner), row % inner]
      const at = (c: number) => (o * reduced + c) * inner + n
      const order = Array.from({ length: reduced }, (_, c) => c).sort(
        (a, b) => keyOf(x[at(b)]) - keyOf(x[at(a)]) || a - b,
      )
      order.slice(0, k).forEach((c, j) => {
        values[(o * k + j) * inner + n] = x[at(c)]
        indices[(o * k + j) * inner + n] = c
      })
    }
    return [values, indices]
  },
  tolerance: { absolute: 0, relative: 0, because: 'some of the elements' },
  cases: [
    axisCase('one element', [1], 0, 1),
    axisCase('the largest of rows of 9x10', [9, 10], 1, 1),
    axisCase('the smallest of columns of 70x5', [70, 5], 0, 1, { isSmallest: true }),
    axisCase('5 of rows of 5x67', [5, 67], 1, 5),
    axisCase('3 of the middle of 2x40x9', [2, 40, 9], 1, 3, { isSmallest: true }),
    axisCase('4 of long rows', [3, 1003], 1, 4),
    axisCase('all of 19, a sort', [19], 0, 19),
    axisCase('nothing', [0, 7], 1, 2),
    axisCase('i32, 3 of rows of 5x67', [5, 67], 1, 3, integers([5, 67])),
    axisCase('i32, the smallest of columns', [70, 5], 0, 2, {
      ...integers([70, 5]),
      isSmallest: true,
    }),
    axisCase('k of 0', [3, 7], 1, 0),
    axisCase('huge', [6, 40], 1, 3, { fill: 'huge' }),
    axisCase('ties', [9, 66], 1, 7, { fill: 'ties' }),
    axisCase('ties of the smallest', [67, 9], 1, 4, { fill: 'ties', isSmallest: true }),
  ],
})

export interface TopKGradAttrs {
  readonly axis: number
  /** Of the axis that was chosen from. */
  readonly size: number
}

/** The gradient of `topK`'s values. shape: dy f32 and indices i32, both [.., k, ..] -> [.., size, ..] */
export const topKGrad: Op<TopKGradAttrs> = defineOp<TopKGradAttrs>({
  name: 'topKGrad',
  infer: ([dy], { axis, size }) => [tensorType(dy.shape.map((d, n) => (n === axis ? size : d)))],
  variants: oneVariant(({ inputs: [dy], outputs: [dx], attrs: { axis, size } }) => {
    const { reduced, inner } = aroundAxis(dy.shape, axis)
    return eachFloat({
      label: 'topKGrad',
      bindings: [reads('dy', { in: 0 }), reads('indices', { in: 1 }, 'i32')],
      output: { name: 'dx', type: dx },
      constants: { N: size, K: reduced, INNER: inner },
      functions: gradBody,
    })
  }),
  reference([dy, indices], { inputs: [{ shape }], outputs: [dx], attrs: { axis, size } }) {
    const result = new Float64Array(countElements(dx.shape))
    const { reduced, inner } = aroundAxis(shape, axis)
    for (let at = 0; at < dy.length; at++) {
      const outer = Math.floor(at / (reduced * inner))
      result[(outer * size + indices[at]) * inner + (at % inner)] = dy[at]
    }
    return [result]
  },
  tolerance: { absolute: 0, relative: 0, because: 'a copy' },
  // One chosen element a row: drawn indices may be equal, those of a real choice are not.
  cases: [
    ['one element', [1], 0, 1, undefined],
    ['of rows of 9x10', [9, 1], 1, 10, undefined],
    ['of columns of 67x5', [1, 5], 0, 67, undefined],
    ['of the middle of 2x40x9', [2, 1, 9], 1, 40, undefined],
    ['nothing', [0, 1], 1, 7, undefined],
    ['of none chosen', [3, 0], 1, 7, undefined],
    ['huge', [33, 1], 1, 5, 'huge'],
  ].map(([name, shape, axis, size, fill]) => ({
    name: name as string,
    inputs: [tensorType(shape as number[]), tensorType(shape as number[], 'i32')],
    attrs: { axis: axis as number, size: size as number },
    integerBelow: { 1: size as number },
    fill: fill as Case['fill'],
  })),
})
