import { place } from '../../kernels/view/view.ts'
import { ShapeError } from '../../util/errors.ts'
import { quoted } from '../../util/kind-of.ts'
import { checkNumber } from '../../util/options.ts'
import { checkWholes, countElements, formatShape, sameShape } from '../../util/shape.ts'
import { emit, mustBeTensor, type Tensor } from '../trace/tensor.ts'
import { cat } from './shape.ts'

/**
 * Values around a padded tensor: a constant; its elements mirrored at the edge; the edge element repeated; elements from the opposite end.
 */
export type PadMode = 'constant' | 'reflect' | 'replicate' | 'circular'

const mustHold = (condition: boolean, text: () => string): void => {
  if (!condition) throw new ShapeError('shape.mismatch', text())
}

/**
 * Returns x with `pads` elements around it: (before, after) for the last axis, then for the one before it, and so on.
 *
 * `mode` is as in torch.nn.functional.pad, or a number, which is the constant; `value` is the constant of mode `constant`, default 0.
 * Negative pads remove elements, for constants.
 * cost: one dispatch for constants, otherwise one per padded axis.
 * errors: `shape.mismatch` for pads that mirror or repeat more than x has; `shape.unsupported` for another mode.
 */
export function pad(
  x: Tensor,
  pads: readonly number[],
  mode: PadMode | number = 'constant',
  value = 0,
): Tensor {
  checkNumber('pad', 'value', value, () => true, 'a number')
  mustBeTensor('pad', { x })
  checkWholes('pad', 'pads', pads)
  mustHold(
    pads.length % 2 === 0 && pads.length <= 2 * x.shape.length,
    () =>
      `pad: expected a pair of whole numbers for each of the last axes of ${formatShape(x.shape)}, got ${formatShape(pads)}. Pairs start at the last axis.`,
  )
  if (typeof mode === 'number') return padConstant(x, pads, mode)
  if (mode === 'constant') return padConstant(x, pads, value)
  if (typeof mode !== 'string' || !Object.hasOwn(beyond, mode)) {
    throw new ShapeError(
      'shape.unsupported',
      `pad: mode must be constant, reflect, replicate or circular, got ${quoted(mode)}. Correct its name.`,
    )
  }
  return pairsOf(x, pads).reduce(
    (tensor, [before, after], axis) => padAxis(tensor, axis, before, after, mode),
    x,
  )
}

/** (before, after) for each axis in order. */
const pairsOf = (x: Tensor, pads: readonly number[]) =>
  x.shape.map((_, axis) => {
    const at = 2 * (x.shape.length - 1 - axis)
    return [pads[at] ?? 0, pads[at + 1] ?? 0] as const
  })

type Beyond = Exclude<PadMode, 'constant'>

interface Sides {
  /** The most elements that can stand on one side of `size`. */
  max(size: number): number
  before(x: Tensor, axis: number, count: number): Tensor
  after(x: Tensor, axis: number, count: number): Tensor
}

const repeated = (x: Tensor, axis: number, at: number, count: number): Tensor =>
  x.narrow(axis, at, 1).expand(x.shape.map((size, n) => (n === axis ? count : size)))

const beyond: Readonly<Record<Beyond, Sides>> = {
  reflect: {
    max: (size) => size - 1,
    before: (x, axis, count) => x.narrow(axis, 1, count).flip(axis),
    after: (x, axis, count) => x.narrow(axis, x.shape[axis] - 1 - count, count).flip(axis),
  },
  replicate: {
    max: (size) => (size === 0 ? 0 : Number.POSITIVE_INFINITY),
    before: (x, axis, count) => repeated(x, axis, 0, count),
    after: (x, axis, count) => repeated(x, axis, x.shape[axis] - 1, count),
  },
  circular: {
    max: (size) => size,
    before: (x, axis, count) => x.narrow(axis, x.shape[axis] - count, count),
    after: (x, axis, count) => x.narrow(axis, 0, count),
  },
}

function padAxis(x: Tensor, axis: number, before: number, after: number, mode: Beyond): Tensor {
  if (before === 0 && after === 0) return x
  const sides = beyond[mode]
  const max = sides.max(x.shape[axis])
  mustHold(
    Math.min(before, after) >= 0 && Math.max(before, after) <= max,
    () =>
      `pad: mode ${mode} allows 0 to ${Math.max(0, max)} elements on each side of dimension ${axis} of ${formatShape(x.shape)}, got ${before} and ${after}. Pad less.`,
  )
  const parts = [
    ...(before > 0 ? [sides.before(x, axis, before)] : []),
    x,
    ...(after > 0 ? [sides.after(x, axis, after)] : []),
  ]
  return cat(parts, axis)
}

function padConstant(x: Tensor, pads: readonly number[], value: number): Tensor {
  const pairs = pairsOf(x, pads)
  let inner = x
  pairs.forEach(([before, after], axis) => {
    const first = Math.max(0, -before)
    const length = x.shape[axis] - first - Math.max(0, -after)
    mustHold(
      length >= 0,
      () =>
        `pad: cannot remove ${first} and ${Math.max(0, -after)} elements from dimension ${axis} of ${formatShape(x.shape)}, got ${formatShape(pads)}. Remove fewer.`,
    )
    inner = inner.narrow(axis, first, length)
  })
  const start = pairs.map(([before]) => Math.max(0, before))
  const shape = inner.shape.map((size, axis) => size + start[axis] + Math.max(0, pairs[axis][1]))
  if (sameShape(shape, inner.shape)) return inner
  // Of an empty tensor nothing lies in the window, wherever that begins.
  const isEmpty = countElements(inner.shape) === 0
  return emit(place, [inner], {
    shape,
    axes: shape.map((_, axis) => axis),
    start: isEmpty ? shape.map(() => 0) : start,
    step: shape.map(() => 1),
    fill: value,
  })
}
