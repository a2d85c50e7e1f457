import { cast as castOp } from '../../kernels/cast/cast.ts'
import { cat as catOp, split as splitOp } from '../../kernels/cat/cat.ts'
import { type ConstantAttrs, constant } from '../../kernels/constant/constant.ts'
import { cumsum as cumsumOp } from '../../kernels/cumsum/cumsum.ts'
import { triangle } from '../../kernels/triangle/triangle.ts'
import { ShapeError } from '../../util/errors.ts'
import { checkOptions } from '../../util/options.ts'
import {
  type DType,
  formatShape,
  type HostDType,
  resolveAxis,
  type Shape,
} from '../../util/shape.ts'
import { emit, emitAll, type Tensor } from '../trace/tensor.ts'

/** Functions that move elements, named as in torch; results are contiguous. Ranges and indices count as in PyTorch. */

export const reshape = (x: Tensor, shape: Shape): Tensor => x.reshape(shape)
export const flatten = (x: Tensor, start?: number, end?: number): Tensor => x.flatten(start, end)
export const expand = (x: Tensor, shape: Shape): Tensor => x.expand(shape)
export const permute = (x: Tensor, axes: readonly number[]): Tensor => x.permute(axes)
export const transpose = (x: Tensor, first: number, second: number): Tensor =>
  x.transpose(first, second)
export const squeeze = (x: Tensor, dim?: number): Tensor => x.squeeze(dim)
export const unsqueeze = (x: Tensor, dim: number): Tensor => x.unsqueeze(dim)
export const slice = (
  x: Tensor,
  dim: number,
  start?: number,
  end?: number,
  step?: number,
): Tensor => x.slice(dim, start, end, step)
export const narrow = (x: Tensor, dim: number, start: number, length: number): Tensor =>
  x.narrow(dim, start, length)
export const select = (x: Tensor, dim: number, index: number): Tensor => x.select(dim, index)
export const flip = (x: Tensor, dims: readonly number[]): Tensor => x.flip(dims)

const mustHold = (condition: boolean, text: () => string): void => {
  if (!condition) throw new ShapeError('shape.mismatch', text())
}

/** The tensors one after the other along an existing axis. cost: one dispatch for each 7 tensors. */
export function cat(tensors: readonly Tensor[], dim = 0): Tensor {
  mustHold(tensors.length > 0, () => 'cat: expected at least one tensor, got none. Pass a list.')
  const axis = resolveAxis('cat', tensors[0].shape, dim)
  return tensors.length === 1 ? tensors[0] : emit(catOp, tensors, { axis })
}

/** The tensors, all of one shape, along a new axis `dim`. */
export function stack(tensors: readonly Tensor[], dim = 0): Tensor {
  const other = tensors.find(({ shape }) => formatShape(shape) !== formatShape(tensors[0].shape))
  mustHold(
    !other,
    () =>
      `stack: tensors must have one shape, got ${formatShape(tensors[0].shape)} and ${formatShape(other!.shape)}. Use cat() for others.`,
  )
  const axis = tensors.length > 0 ? resolveAxis('stack', [...tensors[0].shape, 1], dim) : 0
  return cat(
    tensors.map((tensor) => tensor.unsqueeze(axis)),
    axis,
  )
}

/** The parts of an axis: of `size` elements each, the last one of what is left, or of the given sizes. */
export function split(x: Tensor, size: number | readonly number[], dim = 0): Tensor[] {
  const axis = resolveAxis('split', x.shape, dim)
  const total = x.shape[axis]
  if (typeof size === 'number') {
    mustHold(
      Number.isInteger(size) && size > 0,
      () => `split: expected a size of at least 1, got ${size}. Pass the size of a part.`,
    )
  }
  const sizes =
    typeof size === 'number'
      ? Array.from({ length: Math.max(1, Math.ceil(total / size)) }, (_, n) =>
          Math.min(size, total - n * size),
        )
      : size
  return sizes.length === 1 && sizes[0] === total ? [x] : emitAll(splitOp, [x], { axis, sizes })
}

/** An axis in `chunks` parts of one size, the last one of what is left; fewer where that suffices (of an empty axis all), as in PyTorch. */
export function chunk(x: Tensor, chunks: number, dim = 0): Tensor[] {
  const axis = resolveAxis('chunk', x.shape, dim)
  mustHold(
    Number.isInteger(chunks) && chunks > 0,
    () => `chunk: expected at least 1 chunk, got ${chunks}. Pass how many parts you want.`,
  )
  const size = x.shape[axis]
  return split(x, size === 0 ? Array(chunks).fill(0) : Math.ceil(size / chunks), axis)
}

/** x `sizes[n]` times along axis n; more sizes than axes add axes in front. */
export function repeat(x: Tensor, sizes: readonly number[]): Tensor {
  mustHold(
    sizes.length >= x.shape.length && sizes.every((size) => Number.isInteger(size) && size >= 0),
    () =>
      `repeat: expected a whole number for each dimension of ${formatShape(x.shape)}, got [${sizes.join(', ')}]. Use 1 to leave one as it is.`,
  )
  const own = [...sizes.map(() => 1), ...x.shape].slice(-sizes.length)
  return x
    .reshape(own.flatMap((size) => [1, size]))
    .expand(own.flatMap((size, axis) => [sizes[axis], size]))
    .reshape(own.map((size, axis) => size * sizes[axis]))
}

/**
 * x with its elements moved by `shifts[n]` places along axis `dims[n]`; those beyond the end come back at the beginning.
 *
 * One axis needs no lists. Without `dims` the flattened tensor is rolled and gets its shape back, by one shift.
 */
export function roll(
  x: Tensor,
  shifts: number | readonly number[],
  dims?: number | readonly number[],
): Tensor {
  const by = [shifts].flat()
  const along = dims === undefined ? [] : [dims].flat()
  mustHold(
    by.every(Number.isInteger) && by.length === (dims === undefined ? 1 : along.length),
    () =>
      `roll: expected a whole number for each dimension, got [${by.join(', ')}] for ${dims === undefined ? 'all' : `[${along.join(', ')}]`}. Give one each.`,
  )
  if (dims === undefined) return roll(x.reshape([x.count]), by, 0).reshape(x.shape)
  return along.reduce<Tensor>((tensor, dim, n) => {
    const axis = resolveAxis('roll', x.shape, dim)
    const size = x.shape[axis]
    const places = size === 0 ? 0 : ((by[n] % size) + size) % size
    if (places === 0) return tensor
    const end = tensor.narrow(axis, size - places, places)
    return cat([end, tensor.narrow(axis, 0, size - places)], axis)
  }, x)
}

/** Running sums along an axis. */
export const cumsum = (x: Tensor, dim: number): Tensor =>
  emit(cumsumOp, [x], { axis: resolveAxis('cumsum', x.shape, dim), isReversed: false })

/** The lower triangle of the last two axes, with `diagonal` diagonals above the main one; 0 elsewhere. */
export const tril = (x: Tensor, diagonal = 0): Tensor =>
  emit(triangle, [x], { diagonal, isUpper: false })

/** The upper triangle of the last two axes, without `diagonal` diagonals from the main one up; 0 elsewhere. */
export const triu = (x: Tensor, diagonal = 0): Tensor =>
  emit(triangle, [x], { diagonal, isUpper: true })

/** Elements as another dtype: floats to integers round toward 0. Nothing flows back through integers. */
export const cast = (x: Tensor, dtype: DType): Tensor =>
  x.dtype === dtype ? x : dtype === 'f16' ? x.half() : emit(castOp, [x], { dtype })

/** How a tensor that a function makes is stored, and whether `backward` leaves a gradient in its `grad`. */
export interface TensorOptions {
  dtype?: HostDType
  requiresGrad?: boolean
}

const tensorOptions = { dtype: true, requiresGrad: true } as const

const make = (attrs: ConstantAttrs, requiresGrad = false): Tensor => {
  mustHold(
    attrs.shape.every((size) => Number.isInteger(size) && size >= 0),
    () =>
      `full: expected whole numbers of at least 0 as the shape, got ${formatShape(attrs.shape)}. Correct it.`,
  )
  const tensor = emit(constant, [], attrs)
  return requiresGrad ? tensor.requiresGrad_() : tensor
}

/** A tensor of one number, written by the device in each run. cost: one dispatch. errors: `graph.misuse` for integers that require a gradient. */
export function full(shape: Shape, value: number, options: HostDType | TensorOptions = {}): Tensor {
  const { dtype = 'f32', requiresGrad } = typeof options === 'string' ? { dtype: options } : options
  if (typeof options !== 'string') checkOptions('full', options, tensorOptions)
  return make({ shape, dtype, start: value, step: 0 }, requiresGrad)
}
export const zeros = (shape: Shape, options?: HostDType | TensorOptions): Tensor =>
  full(shape, 0, options)
export const ones = (shape: Shape, options?: HostDType | TensorOptions): Tensor =>
  full(shape, 1, options)

/**
 * `start` (0 unless told), `start + step`, .. below `end`; f32 unless told.
 *
 * errors: as full; `shape.mismatch` for a step that leads away.
 */
export function arange(end: number, options?: TensorOptions): Tensor
export function arange(start: number, end: number, options?: TensorOptions): Tensor
export function arange(start: number, end: number, step?: number, options?: TensorOptions): Tensor
export function arange(first: number, ...others: (number | TensorOptions | undefined)[]): Tensor {
  const [second, third] = others.filter((other) => typeof other === 'number')
  const options = others.find((other) => typeof other === 'object') ?? {}
  const { dtype = 'f32', requiresGrad } = checkOptions('arange', options, tensorOptions)
  const [start, end, step] = second === undefined ? [0, first, 1] : [first, second, third ?? 1]
  const count = Math.ceil((end - start) / step)
  mustHold(
    Number.isFinite(count) && count >= 0,
    () =>
      `arange: expected a step that leads from start to end, got ${start}, ${end} and ${step}. Check its sign.`,
  )
  return make({ shape: [count], dtype, start, step }, requiresGrad)
}
