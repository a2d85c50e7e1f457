import { ShapeError } from '../../util/errors.ts'
import {
  countElements,
  formatShape,
  type Shape,
  type TensorType,
  tensorType,
} from '../../util/shape.ts'
import { eachElement } from '../elements.ts'
import { naiveOr } from '../naive-or.ts'
import { type Case, defineOp, type Lowering, type Op, type OpCall } from '../op.ts'
import { reads, writes } from '../shader.ts'
import { notANumber } from '../view/copy-kernel.ts'
import { emptyLike } from '../view/region.ts'

// Slices of a tensor by an index (an embedding's lookup) and their gradient, which share a file.
//
// An index outside of the axis cannot stop a kernel: its slice is NaN (0 for integers), which a loss shows, and it takes
// no part in the gradient.

/** `ignored`: an index whose slice gets no gradient (an embedding's padding), or null. */
export interface IndexSelectAttrs {
  readonly axis: number
  readonly ignored: number | null
}

/** `size`: of the axis that was selected from. */
export interface IndexSelectGradAttrs extends IndexSelectAttrs {
  readonly size: number
}

/** x as [outer, size, inner] around the axis. */
const around = (shape: Shape, axis: number, axes: number) => ({
  outer: countElements(shape.slice(0, axis)),
  inner: countElements(shape.slice(axis + axes)),
})

function checkIndex(op: string, x: TensorType, index: TensorType, axis: number): void {
  if (index.dtype === 'f32' || !(axis in x.shape)) {
    throw new ShapeError(
      'shape.unsupported',
      `${op}: expected an integer index into a dimension of ${formatShape(x.shape)}, got ${index.dtype}${formatShape(index.shape)} into dimension ${axis}. Convert the index.`,
    )
  }
}

function selectKernel(
  { inputs: [x, index], outputs: [y], attrs: { axis } }: OpCall<IndexSelectAttrs>,
  isWide: boolean,
): Lowering {
  const per = isWide ? 4 : 1
  const inner = around(x.shape, axis, 1).inner / per
  const indices = countElements(index.shape)
  const element = isWide ? 'vec4<u32>' : 'u32'
  const size = x.shape[axis]
  return {
    dispatches: eachElement({
      label: 'indexSelect',
      count: countElements(y.shape) / per,
      bindings: [
        reads('x', { in: 0 }, element),
        reads('index', { in: 1 }, 'u32'),
        writes('y', { out: 0 }, element),
      ],
      main: [
        `let at = index[i / ${inner}u % ${indices}u];`,
        `var value = ${element}(${x.dtype === 'f32' ? notANumber : 0}u);`,
        `if (at < ${size}u) { value = x[(i / ${inner * indices}u * ${size}u + at) * ${inner}u + i % ${inner}u]; }`,
        'y[i] = value;',
      ],
    }),
  }
}

const canSelectWide = ({ inputs: [x], attrs: { axis } }: OpCall<IndexSelectAttrs>) =>
  around(x.shape, axis, 1).inner % 4 === 0 && countElements(x.shape) > 0

/** y = slices of x along an axis by an index of any shape. shape: x[.., S, ..], index[I..] -> [.., I.., ..] */
export const indexSelect: Op<IndexSelectAttrs> = defineOp<IndexSelectAttrs>({
  name: 'indexSelect',
  infer([x, index], { axis }) {
    checkIndex('indexSelect', x, index, axis)
    return [
      tensorType([...x.shape.slice(0, axis), ...index.shape, ...x.shape.slice(axis + 1)], x.dtype),
    ]
  },
  ...naiveOr('wide', canSelectWide, selectKernel),
  gradient(context) {
    const [dy] = context.outputGradients
    const [x, index] = context.inputs
    if (!dy || !context.needs(0)) return [undefined, undefined]
    const { axis, ignored } = context.attrs
    const attrs = { axis, ignored, size: x.type.shape[axis] }
    return [context.emit(indexSelectGrad, [dy, index], attrs)[0], undefined]
  },
  reference([x, index], { inputs: [{ shape, dtype }], outputs: [y], attrs: { axis } }) {
    const { outer, inner } = around(shape, axis, 1)
    const result = emptyLike(dtype, countElements(y.shape))
    let flat = 0
    for (let o = 0; o < outer; o++) {
      for (const at of index) {
        const isInside = at >= 0 && at < shape[axis]
        for (let n = 0; n < inner; n++) {
          result[flat++] = isInside
            ? x[(o * shape[axis] + at) * inner + n]
            : dtype === 'f32'
              ? Number.NaN
              : 0
        }
      }
    }
    return [result]
  },
  tolerance: { absolute: 0, relative: 0, because: 'a copy' },
  cases: [
    selectCase('rows', [11, 7], [5], 0),
    selectCase('tokens', [65, 16], [3, 9], 0),
    selectCase('columns', [4, 9], [6], 1),
    selectCase('the middle axis', [2, 5, 3], [4], 1),
    selectCase('one element', [1], [1], 0),
    selectCase('by a scalar', [5, 3], [], 0),
    selectCase('nothing', [5, 3], [0], 0),
    { ...selectCase('huge', [9, 4], [7], 0), fill: 'huge' },
    {
      name: 'integers, some outside',
      inputs: [tensorType([5, 3], 'i32'), tensorType([9], 'i32')],
      attrs: { axis: 0, ignored: null },
      integerBelow: { 0: 100, 1: 8 },
    },
  ],
})

function selectCase(
  name: string,
  shape: Shape,
  index: Shape,
  axis: number,
): Case<IndexSelectAttrs> {
  return {
    name,
    inputs: [tensorType(shape), tensorType(index, 'i32')],
    attrs: { axis, ignored: null },
    integerBelow: { 1: shape[axis] },
  }
}

/** How the gradient's kernels see the call. */
function gradSizes({ inputs: [dy, index], attrs: { axis, size } }: OpCall<IndexSelectGradAttrs>) {
  const { outer, inner } = around(dy.shape, axis, index.shape.length)
  return { outer, inner, indices: countElements(index.shape), size, total: outer * size * inner }
}

const isCounted = (ignored: number | null) => (at: string) =>
  ignored === null ? [] : [`${at} != ${ignored}u`]

/** Every element of dx looks through the whole index. */
function scanKernel(call: OpCall<IndexSelectGradAttrs>): Lowering {
  const { inner, indices, size, total } = gradSizes(call)
  const found = ['index[n] == row', ...isCounted(call.attrs.ignored)('row')].join(' && ')
  return {
    dispatches: eachElement({
      label: 'indexSelectGrad scan',
      count: total,
      bindings: [
        reads('dy', { in: 0 }),
        reads('index', { in: 1 }, 'u32'),
        writes('dx', { out: 0 }),
      ],
      main: [
        `let row = i / ${inner}u % ${size}u;`,
        `let source = i / ${inner * size}u * ${indices * inner}u + i % ${inner}u;`,
        'var total = 0.0;',
        `for (var n = 0u; n < ${indices}u; n++) {`,
        `  if (${found}) { total += dy[source + n * ${inner}u]; }`,
        '}',
        'dx[i] = total;',
      ],
    }),
  }
}

/**
 * Two dispatches. The first sorts the positions of the index by (index, position), each finding its rank by counting, and
 * clears dx. The second sums, for each index that occurs, the slices of dy that stand together, in order of position.
 *
 * cost: N^2 comparisons of integers, N slices added, dx written once more where it is touched. What is not touched is only
 * cleared: nothing walks the axis of dx looking for its indices.
 */
function rankedKernels(call: OpCall<IndexSelectGradAttrs>, isWide: boolean): Lowering {
  const { outer, inner: elements, indices, size, total } = gradSizes(call)
  if (total === 0) return { dispatches: [] }
  const per = isWide ? 4 : 1
  const inner = elements / per
  const element = isWide ? 'vec4<f32>' : 'f32'
  const counted = [`own < ${size}u`, ...isCounted(call.attrs.ignored)('own')].join(' && ')
  const sort = eachElement({
    label: 'indexSelectGrad sort',
    count: Math.max(total / per, indices),
    bindings: [
      reads('index', { in: 1 }, 'u32'),
      // sorted[rank] = position, and how many follow with the same index where it is the first of them, else 0.
      writes('sorted', { scratch: 0 }, 'vec2<u32>'),
      writes('dx', { out: 0 }, element),
    ],
    main: [
      `if (i < ${total / per}u) { dx[i] = ${element}(0.0); }`,
      `if (i >= ${indices}u) { return; }`,
      'let own = index[i];',
      'var less = 0u;',
      'var equal_before = 0u;',
      'var equal = 0u;',
      `for (var n = 0u; n < ${indices}u; n++) {`,
      '  let other = index[n];',
      '  less += select(0u, 1u, other < own);',
      '  equal += select(0u, 1u, other == own);',
      '  equal_before += select(0u, 1u, other == own && n < i);',
      '}',
      `sorted[less + equal_before] = vec2<u32>(i, select(0u, equal, equal_before == 0u && ${counted}));`,
    ],
  })
  const sums = eachElement({
    label: 'indexSelectGrad sums',
    count: outer * indices * inner,
    bindings: [
      reads('dy', { in: 0 }, element),
      reads('index', { in: 1 }, 'u32'),
      reads('sorted', { scratch: 0 }, 'vec2<u32>'),
      writes('dx', { out: 0 }, element),
    ],
    main: [
      `let first = i / ${inner}u % ${indices}u;`,
      'let count = sorted[first].y;',
      'if (count == 0u) { return; }',
      `let source = i / ${inner * indices}u * ${indices * inner}u + i % ${inner}u;`,
      `var total = ${element}(0.0);`,
      'for (var n = first; n < first + count; n++) {',
      `  total += dy[source + sorted[n].x * ${inner}u];`,
      '}',
      `let row = i / ${inner * indices}u * ${size}u + index[sorted[first].x];`,
      `dx[row * ${inner}u + i % ${inner}u] = total;`,
    ],
  })
  return {
    dispatches: [...sort, ...sums],
    scratch: [tensorType([Math.max(1, indices), 2], 'u32')],
  }
}

const canSumWide = (call: OpCall<IndexSelectGradAttrs>) => gradSizes(call).inner % 4 === 0

/** dx of indexSelect: slices of dy added where the index says, in order of position; everything else is 0. */
export const indexSelectGrad: Op<IndexSelectGradAttrs> = defineOp<IndexSelectGradAttrs>({
  name: 'indexSelectGrad',
  infer([dy, index], { axis, size }) {
    if (dy.dtype !== 'f32') {
      throw new ShapeError(
        'shape.unsupported',
        `indexSelectGrad: dy must be f32, got ${dy.dtype}. Convert it.`,
      )
    }
    const { shape } = dy
    return [tensorType([...shape.slice(0, axis), size, ...shape.slice(axis + index.shape.length)])]
  },
  variants: [
    { name: 'naive', lower: scanKernel },
    { name: 'ranked', lower: (call) => rankedKernels(call, false) },
    {
      name: 'ranked-wide',
      when: canSumWide,
      lower: (call) => rankedKernels(call, true),
    },
  ],
  preferred: (call) => (canSumWide(call) ? 'ranked-wide' : 'ranked'),
  reference([dy, index], call) {
    const { outer, inner, indices, size, total } = gradSizes(call)
    const dx = new Float64Array(total)
    for (let o = 0; o < outer; o++) {
      index.forEach((at, n) => {
        if (at < 0 || at >= size || at === call.attrs.ignored) return
        for (let k = 0; k < inner; k++) {
          dx[(o * size + at) * inner + k] += dy[(o * indices + n) * inner + k]
        }
      })
    }
    return [dx]
  },
  tolerance: {
    absolute: 1e-4,
    relative: 1e-6,
    because: 'up to some hundred additions in f32; terms cancel, so the error is absolute',
  },
  cases: [
    gradCase('rows', [5, 7], [5], 0, 11),
    gradCase('tokens', [3, 90, 16], [3, 90], 0, 65),
    gradCase('few rows of many', [9, 8], [9], 0, 300),
    gradCase('columns', [4, 60], [60], 1, 9),
    gradCase('the middle axis', [2, 4, 3], [4], 1, 5),
    gradCase('one element', [1], [1], 0, 1),
    gradCase('by a scalar', [3], [], 0, 5),
    gradCase('nothing', [0, 3], [0], 0, 5),
    { ...gradCase('huge', [30, 4], [30], 0, 6), fill: 'huge' },
    { ...gradCase('rows but one', [20, 5], [20], 0, 6), attrs: { axis: 0, size: 6, ignored: 2 } },
    { ...gradCase('some outside', [20, 4], [20], 0, 6), integerBelow: { 1: 9 } },
  ],
})

function gradCase(
  name: string,
  dy: Shape,
  index: Shape,
  axis: number,
  size: number,
): Case<IndexSelectGradAttrs> {
  return {
    name,
    inputs: [tensorType(dy), tensorType(index, 'i32')],
    attrs: { axis, size, ignored: null },
    integerBelow: { 1: size },
  }
}
