import { ShapeError } from '../../util/errors.ts'
import {
  type DType,
  formatShape,
  type HostDType,
  type Shape,
  type TensorType,
  tensorType,
} from '../../util/shape.ts'
import { naiveOr } from '../naive-or.ts'
import { defineOp, type HostArray, type Op, type OpCall, type Value } from '../op.ts'
import { contiguous, type Strided } from '../strided.ts'
import { sum } from '../sum/sum.ts'
import { copyKernel, isWideCopy, placeKernel, wordOf } from './copy-kernel.ts'
import {
  emptyLike,
  isInside,
  permutationOf,
  type Region,
  regionIndices,
  regionStrided,
} from './region.ts'

// view, place and strided are copies by index arithmetic; view and place are each other's gradient, so they share a file.

/** The region of the input that becomes the output, and its shape. */
export interface ViewAttrs extends Region {
  readonly shape: Shape
}

/** Where the input goes in an output of that shape; `fill` elsewhere. */
export interface PlaceAttrs extends Region {
  readonly shape: Shape
  readonly fill: number
}

const refuse = (op: string, region: Region, from: TensorType, shape: Shape) =>
  new ShapeError(
    'shape.mismatch',
    `${op}: expected a region inside the larger tensor, got axes [${region.axes}], start [${region.start}], step [${region.step}] for ${formatShape(from.shape)} and ${formatShape(shape)}. Check start, end and step.`,
  )

const stridedOf = ({ inputs: [x], attrs }: OpCall<ViewAttrs>): Strided =>
  regionStrided(attrs, attrs.shape, contiguous(x.shape))

function readStrided({ shape, strides, offset }: Strided, x: HostArray, y: HostArray): HostArray {
  for (let flat = 0; flat < y.length; flat++) {
    let rest = flat
    let at = offset
    for (let axis = shape.length - 1; axis >= 0; axis--) {
      at += (rest % shape[axis]) * strides[axis]
      rest = Math.floor(rest / shape[axis])
    }
    y[flat] = x[at]
  }
  return y
}

const exact = { absolute: 0, relative: 0, because: 'a copy' }

/** y = a region of x: axes in another order, repeated, cut, stepped over or walked backwards. */
export const view: Op<ViewAttrs> = defineOp<ViewAttrs>({
  name: 'view',
  infer([x], attrs) {
    if (!isInside(attrs, attrs.shape, x.shape)) throw refuse('view', attrs, x, attrs.shape)
    return [tensorType(attrs.shape, x.dtype)]
  },
  ...naiveOr(
    'wide',
    (call) => isWideCopy(stridedOf(call)),
    (call, isWide) => copyKernel('view', stridedOf(call), isWide),
  ),
  gradient(context) {
    const [dy] = context.outputGradients
    if (!dy) return [undefined]
    const { attrs } = context
    const { shape } = context.inputs[0].type
    const order = permutationOf(attrs, attrs.shape, shape)
    if (order) {
      const axes = order.map((_, axis) => order.indexOf(axis))
      const whole = { start: shape.map(() => 0), step: shape.map(() => 1) }
      return context.emit(view, [dy], { shape, axes, ...whole })
    }
    const repeated = attrs.axes.flatMap((axis, own) => (axis < 0 ? [own] : []))
    const once: Value =
      repeated.length > 0 ? context.emit(sum, [dy], { axes: repeated, keepDims: false })[0] : dy
    return context.emit(place, [once], {
      shape,
      axes: attrs.axes.filter((axis) => axis >= 0),
      start: attrs.start,
      step: attrs.step,
      fill: 0,
    })
  },
  reference: ([x], call) => [
    readStrided(
      stridedOf(call),
      x,
      emptyLike(
        call.inputs[0].dtype,
        call.outputs[0].shape.reduce((a, b) => a * b, 1),
      ),
    ),
  ],
  tolerance: exact,
  cases: [
    viewCase('transposed', [5, 7], [7, 5], [1, 0]),
    viewCase('heads apart', [2, 6, 3, 8], [2, 3, 6, 8], [0, 2, 1, 3]),
    viewCase('every axis elsewhere', [3, 4, 5], [5, 3, 4], [2, 0, 1]),
    viewCase('every second column, backwards', [4, 9], [4, 4], [0, 1], [0, 7], [1, -2]),
    viewCase('a row', [6, 5], [5], [1], [3, 0]),
    viewCase('repeated', [3, 1, 4], [2, 3, 5, 4], [-1, 0, -1, 2]),
    viewCase('a wide slice', [6, 12], [3, 8], [0, 1], [2, 4]),
    viewCase('flipped', [8, 4], [8, 4], [0, 1], [7, 0], [-1, 1]),
    viewCase('one element', [3, 3], [1], [0], [1, 2]),
    viewCase('nothing', [3, 4], [3, 0], [0, 1]),
    viewCase('huge', [6, 7], [7, 6], [1, 0], undefined, undefined, 'huge'),
    viewCase('integers', [5, 6], [6, 5], [1, 0], undefined, undefined, undefined, 'i32'),
  ],
})

function viewCase(
  name: string,
  from: Shape,
  shape: Shape,
  axes: readonly number[],
  start: readonly number[] = from.map(() => 0),
  step: readonly number[] = from.map(() => 1),
  fill?: 'huge',
  dtype: DType = 'f32',
) {
  return { name, inputs: [tensorType(from, dtype)], attrs: { shape, axes, start, step }, fill }
}

/** y = x at a region of a larger tensor, `fill` elsewhere: padding, and the gradient of a slice. */
export const place: Op<PlaceAttrs> = defineOp<PlaceAttrs>({
  name: 'place',
  infer([x], attrs) {
    const { shape, axes } = attrs
    if (axes.includes(-1) || !isInside(attrs, x.shape, shape))
      throw refuse('place', attrs, x, shape)
    return [tensorType(shape, x.dtype)]
  },
  variants: [
    {
      name: 'naive',
      lower: ({ inputs: [x], attrs }) =>
        placeKernel('place', attrs, x.shape, attrs.shape, wordOf(attrs.fill, x.dtype as HostDType)),
    },
  ],
  gradient(context) {
    const [dy] = context.outputGradients
    if (!dy) return [undefined]
    const { axes, start, step } = context.attrs
    const { shape } = context.inputs[0].type
    return context.emit(view, [dy], { shape, axes, start, step })
  },
  reference([x], { inputs: [{ shape: small, dtype }], attrs }) {
    const y = emptyLike(
      dtype,
      attrs.shape.reduce((product, size) => product * size, 1),
    ).fill(attrs.fill)
    let n = 0
    for (const at of regionIndices(attrs, small, attrs.shape)) y[at] = x[n++]
    return [y]
  },
  tolerance: exact,
  cases: [
    placeCase('padded', [3, 5], [6, 9], [0, 1], [1, 2], [1, 1], -2.5),
    placeCase('every second, backwards', [4, 4], [4, 9], [0, 1], [0, 7], [1, -2]),
    placeCase('a row', [5], [6, 5], [1], [3, 0]),
    placeCase('in another order', [4, 3], [3, 6], [1, 0], [0, 1]),
    placeCase('whole', [3, 4, 8], [3, 4, 8], [0, 1, 2]),
    placeCase('a block of images', [2, 3, 4, 4], [2, 3, 6, 6], [0, 1, 2, 3], [0, 0, 1, 1]),
    placeCase('one element', [1], [67], [0], [66]),
    placeCase('nothing', [0, 3], [4, 3], [0, 1]),
    placeCase('huge', [3, 3], [5, 3], [0, 1], [1, 0], [1, 1], 0, 'huge'),
    placeCase('integers', [3], [5], [0], [1], [1], -1, undefined, 'i32'),
  ],
})

function placeCase(
  name: string,
  small: Shape,
  shape: Shape,
  axes: readonly number[],
  start: readonly number[] = shape.map(() => 0),
  step: readonly number[] = shape.map(() => 1),
  fill = 0,
  draw?: 'huge',
  dtype: DType = 'f32',
) {
  return {
    name,
    inputs: [tensorType(small, dtype)],
    attrs: { shape, axes, start, step, fill },
    fill: draw,
  }
}

/** y = x read by strides: what rewrites make of several views in a row. It has no gradient, since gradients come before. */
export const strided: Op<Strided> = defineOp<Strided>({
  name: 'strided',
  infer: ([x], { shape }) => [tensorType(shape, x.dtype)],
  ...naiveOr(
    'wide',
    ({ attrs }) => isWideCopy(attrs),
    ({ attrs }, isWide) => copyKernel('strided', attrs, isWide),
  ),
  reference: ([x], { inputs: [{ dtype }], outputs: [{ shape }], attrs }) => [
    readStrided(
      attrs,
      x,
      emptyLike(
        dtype,
        shape.reduce((product, size) => product * size, 1),
      ),
    ),
  ],
  tolerance: exact,
  cases: [
    {
      name: 'part of a row, by heads',
      inputs: [tensorType([2, 5, 24])],
      attrs: { shape: [2, 2, 5, 4], strides: [120, 4, 24, 1], offset: 8 },
    },
    {
      name: 'a diagonal, backwards',
      inputs: [tensorType([7, 7])],
      attrs: { shape: [7], strides: [-8], offset: 48 },
    },
    {
      name: 'huge',
      inputs: [tensorType([4, 3])],
      attrs: { shape: [3, 4], strides: [1, 3], offset: 0 },
      fill: 'huge',
    },
    {
      name: 'one element',
      inputs: [tensorType([9])],
      attrs: { shape: [], strides: [], offset: 5 },
    },
    { name: 'nothing', inputs: [tensorType([3])], attrs: { shape: [0], strides: [1], offset: 0 } },
  ],
})
