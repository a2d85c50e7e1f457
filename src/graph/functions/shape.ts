import { cast as castOp } from '../../kernels/cast/cast.ts'
import { cat as catOp, split as splitOp } from '../../kernels/cat/cat.ts'
import { type ConstantAttrs, constant } from '../../kernels/constant/constant.ts'
import { cumsum as cumsumOp } from '../../kernels/cumsum/cumsum.ts'
import { triangle } from '../../kernels/triangle/triangle.ts'
import { calledAs } from '../../util/called-as.ts'
import { ShapeError } from '../../util/errors.ts'
import { quoted } from '../../util/kind-of.ts'
import { checkArgument, checkChoice, checkOptions, isCount } from '../../util/options.ts'
import {
  checkShape,
  checkWholes,
  type DType,
  formatShape,
  type HostDType,
  resolveAxis,
  type Shape,
  sameShape,
} from '../../util/shape.ts'
import { emit, emitAll, mustBeTensor, type Tensor } from '../trace/tensor.ts'
import { itemsOf } from '../trace/tensor-arguments.ts'

/**
 * Returns x with another shape, as Tensor.reshape. Functions that move elements are named as in torch; results are contiguous. Ranges and
 * indices count as in PyTorch.
 */

export const reshape = (x: Tensor, shape: Shape): Tensor =>
  mustBeTensor('reshape', { x }).reshape(shape)
export const flatten = (x: Tensor, start?: number, end?: number): Tensor =>
  mustBeTensor('flatten', { x }).flatten(start, end)
export const expand = (x: Tensor, shape: Shape): Tensor =>
  mustBeTensor('expand', { x }).expand(shape)
export const permute = (x: Tensor, axes: readonly number[]): Tensor =>
  mustBeTensor('permute', { x }).permute(axes)
export const transpose = (x: Tensor, first: number, second: number): Tensor =>
  mustBeTensor('transpose', { x }).transpose(first, second)
export const squeeze = (x: Tensor, dim?: number): Tensor =>
  mustBeTensor('squeeze', { x }).squeeze(dim)
export const unsqueeze = (x: Tensor, dim: number): Tensor =>
  mustBeTensor('unsqueeze', { x }).unsqueeze(dim)
export const slice = (
  x: Tensor,
  dim: number,
  start?: number,
  end?: number,
  step?: number,
): Tensor => mustBeTensor('slice', { x }).slice(dim, start, end, step)
export const narrow = (x: Tensor, dim: number, start: number, length: number): Tensor =>
  mustBeTensor('narrow', { x }).narrow(dim, start, length)
export const select = (x: Tensor, dim: number, index: number): Tensor =>
  mustBeTensor('select', { x }).select(dim, index)
export const flip = (x: Tensor, dims: readonly number[]): Tensor =>
  mustBeTensor('flip', { x }).flip(dims)

const mustHold = (condition: boolean, text: () => string): void => {
  if (!condition) throw new ShapeError('shape.mismatch', text())
}

function mustBeList(name: string, tensors: readonly Tensor[]): void {
  mustHold(
    Array.isArray(tensors) && tensors.length > 0,
    () =>
      `${name}: tensors must be a list of at least one tensor, got ${quoted(tensors)}. Pass a list.`,
  )
  mustBeTensor(name, itemsOf('tensors', tensors))
}

/** Returns the tensors concatenated along an existing axis. cost: one dispatch per 7 tensors. */
export function cat(tensors: readonly Tensor[], dim = 0): Tensor {
  mustBeList('cat', tensors)
  const axis = resolveAxis('cat', 'dim', tensors[0].shape, dim)
  return tensors.length === 1 ? tensors[0] : emit(catOp, tensors, { axis })
}

/** Returns the tensors, all of the same shape, along a new axis `dim`. */
export function stack(tensors: readonly Tensor[], dim = 0): Tensor {
  mustBeList('stack', tensors)
  const other = tensors.find(({ shape }) => !sameShape(shape, tensors[0].shape))
  mustHold(
    !other,
    () =>
      `stack: tensors must have the same shape, got ${formatShape(tensors[0].shape)} and ${formatShape(other!.shape)}. Use cat() for different shapes.`,
  )
  const axis = resolveAxis('stack', 'dim', [...tensors[0].shape, 1], dim)
  return cat(
    tensors.map((tensor) => tensor.unsqueeze(axis)),
    axis,
  )
}

/** Returns the parts of an axis: of `size` elements each, the last one possibly smaller, or of the given sizes. */
export function split(x: Tensor, size: number | readonly number[], dim = 0): Tensor[] {
  const axis = resolveAxis('split', 'dim', mustBeTensor('split', { x }).shape, dim)
  const total = x.shape[axis]
  if (typeof size === 'number') {
    mustHold(
      Number.isInteger(size) && size > 0,
      () => `split: size must be at least 1, got ${size}. Pass the size of a part.`,
    )
  }
  if (typeof size !== 'number') checkWholes('split', 'size', size, 0)
  const sizes =
    typeof size === 'number'
      ? Array.from({ length: Math.max(1, Math.ceil(total / size)) }, (_, n) =>
          Math.min(size, total - n * size),
        )
      : size
  return sizes.length === 1 && sizes[0] === total ? [x] : emitAll(splitOp, [x], { axis, sizes })
}

/** More parts than a program can have outputs. */
const maxParts = 2 ** 16

/**
 * Returns an axis in `chunks` equal parts, the last one possibly smaller; fewer parts if that suffices (except for an empty axis), as in
 * PyTorch.
 */
export function chunk(x: Tensor, chunks: number, dim = 0): Tensor[] {
  const axis = resolveAxis('chunk', 'dim', mustBeTensor('chunk', { x }).shape, dim)
  mustHold(
    isCount(chunks) && chunks <= maxParts,
    () =>
      `chunk: chunks must be from 1 to ${maxParts}, got ${quoted(chunks)}. Pass the number of parts.`,
  )
  const size = x.shape[axis]
  return split(x, size === 0 ? Array(chunks).fill(0) : Math.ceil(size / chunks), axis)
}

/** Returns x repeated `sizes[n]` times along axis n; more sizes than axes add leading axes. */
export function repeat(x: Tensor, sizes: readonly number[]): Tensor {
  mustBeTensor('repeat', { x })
  checkWholes('repeat', 'sizes', sizes, 0)
  mustHold(
    sizes.length >= x.shape.length,
    () =>
      `repeat: sizes must have a whole number for each dimension of ${formatShape(x.shape)}, got ${formatShape(sizes)}. Use 1 for dimensions that do not change.`,
  )
  const own = [...sizes.map(() => 1), ...x.shape].slice(-sizes.length)
  return calledAs('repeat', ['expand', 'reshape'], () =>
    x
      .reshape(own.flatMap((size) => [1, size]))
      .expand(own.flatMap((size, axis) => [sizes[axis], size]))
      .reshape(own.map((size, axis) => size * sizes[axis])),
  )
}

/**
 * Returns x with its elements shifted by `shifts[n]` places along axis `dims[n]`; elements beyond the end reappear at the start.
 *
 * One axis needs no lists. Without `dims` the flattened tensor is rolled by one shift and reshaped back.
 */
export function roll(
  x: Tensor,
  shifts: number | readonly number[],
  dims?: number | readonly number[],
): Tensor {
  mustBeTensor('roll', { x })
  const by = [shifts].flat()
  const along = dims === undefined ? [] : [dims].flat()
  mustHold(
    by.every(Number.isInteger) && by.length === (dims === undefined ? 1 : along.length),
    () =>
      `roll: shifts must be a whole number for each of dims, got ${quoted(by)} for ${dims === undefined ? 'all' : quoted(along)}. Pass one per dimension.`,
  )
  if (dims === undefined) return roll(x.reshape([x.count]), by, 0).reshape(x.shape)
  return along.reduce<Tensor>((tensor, dim, n) => {
    const axis = resolveAxis('roll', 'dims', x.shape, dim)
    const size = x.shape[axis]
    const places = size === 0 ? 0 : ((by[n] % size) + size) % size
    if (places === 0) return tensor
    const end = tensor.narrow(axis, size - places, places)
    return cat([end, tensor.narrow(axis, 0, size - places)], axis)
  }, x)
}

/** Returns running sums along an axis. */
export const cumsum = (x: Tensor, dim: number): Tensor =>
  emit(cumsumOp, [x], {
    axis: resolveAxis('cumsum', 'dim', mustBeTensor('cumsum', { x }).shape, dim),
    isReversed: false,
  })

/** Returns the lower triangle of the last two axes, with `diagonal` diagonals above the main one; 0 elsewhere. */
export const tril = (x: Tensor, diagonal = 0): Tensor =>
  emit(triangle, [mustBeTensor('tril', { x })], { diagonal, isUpper: false }, 'tril')

/** Returns the upper triangle of the last two axes, without `diagonal` diagonals from the main one up; 0 elsewhere. */
export const triu = (x: Tensor, diagonal = 0): Tensor =>
  emit(triangle, [mustBeTensor('triu', { x })], { diagonal, isUpper: true }, 'triu')

/** Returns the elements as another dtype; floats become integers by rounding toward 0. Gradients do not flow through integers. */
export function cast(x: Tensor, dtype: DType): Tensor {
  checkArgument('cast', 'dtype', dtype, typeof dtype === 'string', 'a dtype, such as i32')
  if (mustBeTensor('cast', { x }).dtype === dtype) return x
  return dtype === 'f16' ? x.half() : emit(castOp, [x], { dtype })
}

/** Element type of a new tensor, and whether `backward` stores a gradient in its `grad`. */
export interface TensorOptions {
  dtype?: HostDType
  requiresGrad?: boolean
}

const tensorOptions = { dtype: true, requiresGrad: 'flag' } as const

const make = (where: string, attrs: ConstantAttrs, requiresGrad = false): Tensor => {
  checkShape(where, attrs.shape)
  const tensor = emit(constant, [], attrs, where)
  return requiresGrad ? tensor.requiresGrad_() : tensor
}

/**
 * Returns a tensor filled with one number, written by the device in each run. cost: one dispatch. errors: `graph.misuse` for integers that
 * require a gradient.
 */
export const full = (shape: Shape, value: number, options?: HostDType | TensorOptions): Tensor =>
  filledBy('full', shape, value, options)
export const zeros = (shape: Shape, options?: HostDType | TensorOptions): Tensor =>
  filledBy('zeros', shape, 0, options)
export const ones = (shape: Shape, options?: HostDType | TensorOptions): Tensor =>
  filledBy('ones', shape, 1, options)

function filledBy(
  where: string,
  shape: Shape,
  value: number,
  options: HostDType | TensorOptions = {},
): Tensor {
  checkArgument(where, 'value', value, typeof value === 'number', 'a number')
  if (typeof options === 'string') {
    checkChoice(where, 'options', options, ['f32', 'i32', 'u32'])
    return make(where, { shape, dtype: options, start: value, step: 0 })
  }
  const { dtype = 'f32', requiresGrad } = checkOptions(where, options, tensorOptions)
  return make(where, { shape, dtype, start: value, step: 0 }, requiresGrad)
}

/**
 * Returns `start` (default 0), `start + step`, .. below `end`; f32 by default.
 *
 * errors: as full; `shape.mismatch` for a step in the wrong direction.
 */
export function arange(end: number, options?: TensorOptions): Tensor
export function arange(start: number, end: number, options?: TensorOptions): Tensor
export function arange(start: number, end: number, step?: number, options?: TensorOptions): Tensor
export function arange(start: number, ...others: (number | TensorOptions | undefined)[]): Tensor {
  const [second, third] = others.filter((other) => typeof other === 'number')
  const options = (others.find((other) => typeof other !== 'number') ?? {}) as TensorOptions
  const { dtype = 'f32', requiresGrad } = checkOptions('arange', options, tensorOptions)
  const [from, end, step] = second === undefined ? [0, start, 1] : [start, second, third ?? 1]
  checkArgument('arange', 'start or end', start, typeof start === 'number', 'a number')
  const count = Math.ceil((end - from) / step)
  mustHold(
    Number.isFinite(count) && count >= 0,
    () =>
      `arange: a step of ${step} does not lead from start ${from} to end ${end}. Check its sign.`,
  )
  return make('arange', { shape: [count], dtype, start: from, step }, requiresGrad)
}
