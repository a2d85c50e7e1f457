import { ShapeError } from '../../util/errors.ts'
import {
  countElements,
  formatShape,
  type Shape,
  stridesOf,
  type TensorType,
  tensorType,
} from '../../util/shape.ts'
import { constant } from '../constant/constant.ts'
import { eachElement, oneVariant } from '../elements.ts'
import { type Case, defineOp, type Lowering, type Op, type OpCall } from '../op.ts'
import { reads, writes } from '../shader.ts'
import { coordinatesOf, offsetOf } from '../strided.ts'
import { notANumber } from '../view/copy-kernel.ts'
import { emptyLike } from '../view/region.ts'
import { place } from '../view/view.ts'

// gather and scatterAdd are each other's gradient, so they share a file.
//
// An index outside of the axis cannot stop a kernel: gather then gives NaN (0 for integers), which a loss shows, and
// scatterAdd leaves that element out.

export interface GatherAttrs {
  readonly axis: number
}

/** `shape`: of the result, which begins as the third input, or as zeros where there is none. */
export interface ScatterAddAttrs {
  readonly axis: number
  readonly shape: Shape
}

function checkIndex(op: string, whole: Shape, index: TensorType, axis: number): void {
  const fits =
    index.dtype !== 'f32' &&
    index.shape.length === whole.length &&
    axis in whole &&
    index.shape.every((size, d) => d === axis || size <= whole[d])
  if (!fits) {
    throw new ShapeError(
      'shape.mismatch',
      `${op}: the index must be of integers and no larger than ${formatShape(whole)} except in dimension ${axis}, got ${index.dtype}${formatShape(index.shape)}. Expand or convert it.`,
    )
  }
}

/** For an element of the index: its coordinates, and where its line begins in a tensor of `shape`. */
function* linesOf(index: Shape, axis: number, shape: Shape) {
  const strides = stridesOf(shape)
  const count = countElements(index)
  for (let flat = 0; flat < count; flat++) {
    let rest = flat
    let line = 0
    let along = 0
    for (let d = index.length - 1; d >= 0; d--) {
      if (d === axis) along = rest % index[d]
      else line += (rest % index[d]) * strides[d]
      rest = Math.floor(rest / index[d])
    }
    yield { flat, line, along, stride: strides[axis] }
  }
}

const withoutAxis = (values: readonly number[], axis: number) =>
  values.map((value, d) => (d === axis ? 0 : value))

/** y[.., i, ..] = x[.., index[.., i, ..], ..] along an axis. */
export const gather: Op<GatherAttrs> = defineOp<GatherAttrs>({
  name: 'gather',
  infer([x, index], { axis }) {
    checkIndex('gather', x.shape, index, axis)
    return [tensorType(index.shape, x.dtype)]
  },
  variants: oneVariant(({ inputs: [x, index], attrs: { axis } }) => {
    const strides = stridesOf(x.shape)
    const line = offsetOf(coordinatesOf(index.shape, 'i'), withoutAxis(strides, axis))
    return eachElement({
      label: 'gather',
      count: countElements(index.shape),
      bindings: [
        reads('x', { in: 0 }, 'u32'),
        reads('index', { in: 1 }, 'u32'),
        writes('y', { out: 0 }, 'u32'),
      ],
      main: [
        `var value = ${x.dtype === 'f32' ? notANumber : 0}u;`,
        'let at = index[i];',
        `if (at < ${x.shape[axis]}u) { value = x[${line} + at * ${strides[axis]}u]; }`,
        'y[i] = value;',
      ],
    })
  }),
  gradient(context) {
    const [dy] = context.outputGradients
    const [x, index] = context.inputs
    if (!dy || !context.needs(0)) return [undefined, undefined]
    const attrs = { axis: context.attrs.axis, shape: x.type.shape }
    return [context.emit(scatterAdd, [index, dy], attrs)[0], undefined]
  },
  reference([x, index], { inputs: [type, { shape }], attrs: { axis } }) {
    const y = emptyLike(type.dtype, index.length)
    for (const { flat, line, stride } of linesOf(shape, axis, type.shape)) {
      const at = index[flat]
      const isInside = at >= 0 && at < type.shape[axis]
      y[flat] = isInside ? x[line + at * stride] : type.dtype === 'f32' ? Number.NaN : 0
    }
    return [y]
  },
  tolerance: { absolute: 0, relative: 0, because: 'a copy' },
  cases: [
    gatherCase('columns', [5, 7], [5, 3], 1, 7),
    gatherCase('rows', [5, 7], [4, 7], 0, 5),
    gatherCase('the middle axis of part', [4, 6, 3], [2, 5, 3], 1, 6),
    gatherCase('one of each row', [67, 10], [67, 1], 1, 10),
    gatherCase('from a line', [9], [20], 0, 9),
    gatherCase('one element', [1], [1], 0, 1),
    gatherCase('nothing', [3, 4], [3, 0], 1, 4),
    { ...gatherCase('huge', [4, 5], [4, 5], 1, 5), fill: 'huge' },
    {
      ...gatherCase('integers by words', [4, 5], [4, 5], 1, 5),
      inputs: [tensorType([4, 5], 'i32'), tensorType([4, 5], 'u32')],
      integerBelow: { 0: 9, 1: 5 },
    },
  ],
})

function gatherCase(name: string, x: Shape, index: Shape, axis: number, below: number) {
  return {
    name,
    inputs: [tensorType(x), tensorType(index, 'i32')],
    attrs: { axis },
    integerBelow: { 1: below },
  }
}

/** Outputs beyond this many elements of the index a line are made line by line, where there are lines enough. */
const searchLimit = 32
const enoughLines = 64

const scatterSizes = ({ inputs: [index], attrs: { axis, shape } }: OpCall<ScatterAddAttrs>) => ({
  /** Elements of the index along the axis, and lines of the result. */
  along: index.shape[axis],
  lines: countElements(shape.filter((_, d) => d !== axis)),
})

/** WGSL of a loop over the line of the index that invocation i stands in; lines that the index does not reach add nothing. */
function alongIndex(
  { inputs: [index, src], attrs: { axis, shape } }: OpCall<ScatterAddAttrs>,
  coordinates: readonly string[],
  add: (found: string, from: string) => string,
): string[] {
  if (countElements(index.shape) === 0) return []
  const [ofIndex, ofSrc] = [index, src].map((type) => stridesOf(type.shape))
  const at = (strides: readonly number[]) => offsetOf(coordinates, withoutAxis(strides, axis))
  const guards = index.shape.flatMap((size, d) =>
    d !== axis && size < shape[d] ? [`${coordinates[d]} < ${size}u`] : [],
  )
  const loop = [
    `let index_line = ${at(ofIndex)};`,
    `let src_line = ${at(ofSrc)};`,
    `for (var k = 0u; k < ${index.shape[axis]}u; k++) {`,
    `  ${add(`index[index_line + k * ${ofIndex[axis]}u]`, `src[src_line + k * ${ofSrc[axis]}u]`)}`,
    '}',
  ]
  return guards.length > 0 ? [`if (${guards.join(' && ')}) {`, ...loop, '}'] : loop
}

/** One invocation for each element of the result, which looks through its line of the index. */
function searchKernel(call: OpCall<ScatterAddAttrs>): Lowering {
  const { inputs, attrs } = call
  const { axis, shape } = attrs
  const coordinates = coordinatesOf(shape, 'i')
  return {
    dispatches: eachElement({
      label: 'scatterAdd search',
      count: countElements(shape),
      bindings: bindings(inputs.length),
      main: [
        `var total = ${inputs.length > 2 ? 'x[i]' : '0.0'};`,
        `let here = ${coordinates[axis]};`,
        ...alongIndex(
          call,
          coordinates,
          (found, from) => `if (${found} == here) { total += ${from}; }`,
        ),
        'y[i] = total;',
      ],
    }),
  }
}

/** One invocation for each line of the result, which it alone reads and writes: begins as x, then adds along the index. */
function lineKernel(call: OpCall<ScatterAddAttrs>): Lowering {
  const { inputs, attrs } = call
  const { axis, shape } = attrs
  const coordinates = coordinatesOf(
    shape.map((size, d) => (d === axis ? 1 : size)),
    'i',
  )
  const strides = stridesOf(shape)
  const at = (place: string) => `line + ${place} * ${strides[axis]}u`
  return {
    dispatches: eachElement({
      label: 'scatterAdd lines',
      count: countElements(shape) / Math.max(1, shape[axis]),
      bindings: bindings(inputs.length),
      main: [
        `let line = ${offsetOf(coordinates, withoutAxis(strides, axis))};`,
        `for (var j = 0u; j < ${shape[axis]}u; j++) { y[${at('j')}] = ${inputs.length > 2 ? `x[${at('j')}]` : '0.0'}; }`,
        ...alongIndex(
          call,
          coordinates,
          (found, from) =>
            `let here = ${found}; if (here < ${shape[axis]}u) { y[${at('here')}] += ${from}; }`,
        ),
      ],
    }),
  }
}

const bindings = (inputs: number) => [
  reads('index', { in: 0 }, 'u32'),
  reads('src', { in: 1 }),
  ...(inputs > 2 ? [reads('x', { in: 2 })] : []),
  writes('y', { out: 0 }),
]

/**
 * y = x, with src[.., i, ..] added at y[.., index[.., i, ..], ..] along an axis; additions to one element are in order of i.
 *
 * Inputs: index, src, and x unless it is zeros.
 * cost: each element of y looks through its line of the index, or, where lines are many and long, each line is made by
 * one invocation in as many steps as the line of y and of the index have elements.
 */
export const scatterAdd: Op<ScatterAddAttrs> = defineOp<ScatterAddAttrs>({
  name: 'scatterAdd',
  infer([index, src, x], { axis, shape }) {
    checkIndex('scatterAdd', shape, index, axis)
    const isCovered =
      src.shape.length === shape.length && index.shape.every((size, d) => size <= src.shape[d])
    if (!isCovered || src.dtype !== 'f32' || (x && x.dtype !== 'f32')) {
      throw new ShapeError(
        'shape.mismatch',
        `scatterAdd: src must be f32 and at least as large as the index ${formatShape(index.shape)}, got ${src.dtype}${formatShape(src.shape)}. Expand it.`,
      )
    }
    return [tensorType(shape)]
  },
  variants: [
    { name: 'naive', lower: searchKernel },
    { name: 'lines', lower: lineKernel },
  ],
  preferred(call) {
    const { along, lines } = scatterSizes(call)
    return along > searchLimit && lines >= enoughLines ? 'lines' : 'naive'
  },
  gradient(context) {
    const [dy] = context.outputGradients
    const [index, src] = context.inputs
    if (!dy) return context.inputs.map(() => undefined)
    const { axis } = context.attrs
    const whole = src.type.shape
    const part = index.type.shape
    const taken = context.needs(1) ? context.emit(gather, [dy, index], { axis })[0] : undefined
    const isWhole = part.every((size, d) => size === whole[d])
    const dsrc =
      !taken || isWhole
        ? taken
        : countElements(part) === 0
          ? context.emit(constant, [], { shape: whole, dtype: 'f32', start: 0, step: 0 })[0]
          : context.emit(place, [taken], {
              shape: whole,
              axes: whole.map((_, d) => d),
              start: whole.map(() => 0),
              step: whole.map(() => 1),
              fill: 0,
            })[0]
    return [undefined, dsrc, dy].slice(0, context.inputs.length)
  },
  reference(values, { inputs: types, attrs: { axis, shape } }) {
    const [index, src, x] = values
    const y = new Float64Array(countElements(shape))
    if (x) y.set(x)
    const lines = linesOf(types[0].shape, axis, shape)
    const sources = linesOf(types[0].shape, axis, types[1].shape)
    for (const { flat, line, stride } of lines) {
      const source = sources.next().value!
      const at = index[flat]
      if (at < 0 || at >= shape[axis]) continue
      y[line + at * stride] += src[source.line + source.along * source.stride]
    }
    return [y]
  },
  tolerance: {
    absolute: 1e-5,
    relative: 1e-6,
    because: 'up to some hundred additions in f32; terms cancel, so the error is absolute',
  },
  cases: [
    scatterCase('columns', [5, 7], [5, 9], [5, 9], 1),
    scatterCase('rows onto x', [5, 7], [12, 7], [12, 7], 0, true),
    scatterCase('part of the middle axis onto x', [4, 6, 3], [2, 5, 3], [3, 6, 3], 1, true),
    scatterCase('one of each row', [67, 10], [67, 1], [67, 1], 1),
    scatterCase('many onto few', [70, 3], [70, 80], [70, 80], 1),
    scatterCase('a line', [9], [200], [200], 0),
    scatterCase('one element', [1], [1], [1], 0),
    scatterCase('nothing onto x', [3, 4], [3, 0], [3, 0], 1, true),
    scatterCase('onto nothing', [0, 4], [0, 4], [0, 4], 1),
    { ...scatterCase('huge', [4, 5], [4, 9], [4, 9], 1), fill: 'huge' },
  ],
})

function scatterCase(
  name: string,
  shape: Shape,
  index: Shape,
  src: Shape,
  axis: number,
  hasX = false,
): Case<ScatterAddAttrs> {
  const inputs = [tensorType(index, 'i32'), tensorType(src), ...(hasX ? [tensorType(shape)] : [])]
  return { name, inputs, attrs: { axis, shape }, integerBelow: { 0: Math.max(1, shape[axis]) } }
}
