import { ArgumentTypeError, ShapeError } from './errors.ts'
import { quoted } from './kind-of.ts'

/** Element types that the host holds too; each takes 4 bytes. */
export type HostDType = 'f32' | 'i32' | 'u32'
/** Element types of tensors on the device. `f16` only exists between ops: two values share a word, which halves the memory. */
export type DType = HostDType | 'f16'
/** Row-major dimensions; `[]` is a scalar. */
export type Shape = readonly number[]

/** The shape and dtype of a tensor. */
export interface TensorType {
  readonly shape: Shape
  readonly dtype: DType
}

const dtypes: readonly DType[] = ['f32', 'i32', 'u32', 'f16']

/**
 * Returns a tensor type; `f32` by default.
 *
 * errors: `shape.unsupported` for a dtype that there is not; those of `checkShape`.
 */
export function tensorType(shape: Shape, dtype: DType = 'f32'): TensorType {
  checkShape('tensorType', shape)
  if (!dtypes.includes(dtype)) {
    throw new ShapeError(
      'shape.unsupported',
      `tensorType: dtype must be one of ${dtypes.join(', ')}, got ${quoted(dtype)}. Correct its name, or convert the data.`,
    )
  }
  // What the caller does with the array later does not change the type, nor does what reads the type.
  return { shape: Object.freeze([...shape]), dtype }
}

/** The most elements that an array of JavaScript can have. */
export const maxElements = 2 ** 32 - 1

/**
 * A list of whole numbers, of which none is below `min`.
 *
 * errors: `config.invalid`, a TypeError, for what is no list; `shape.mismatch` for other numbers; both name `where` and the argument.
 */
export function checkWholes(
  where: string,
  name: string,
  list: readonly number[],
  min = Number.NEGATIVE_INFINITY,
): void {
  const range = min === Number.NEGATIVE_INFINITY ? '' : ` of at least ${min}`
  const expected = `${where}: ${name} must be a list of whole numbers${range}, got ${quoted(list)}`
  if (!Array.isArray(list)) throw new ArgumentTypeError(`${expected}. Write [2, 3] for example.`)
  // A loop goes over holes too.
  if (![...list].every((one) => Number.isInteger(one) && one >= min)) {
    throw new ShapeError('shape.mismatch', `${expected}. Correct it.`)
  }
}

/** errors: `shape.mismatch`, naming `where` and the argument, unless it is a whole number. */
export function checkWhole(where: string, name: string, value: number): void {
  if (Number.isInteger(value)) return
  throw new ShapeError(
    'shape.mismatch',
    `${where}: ${name} must be a whole number, got ${quoted(value)}. Correct it.`,
  )
}

/** errors: as `checkWholes` for what is no shape; as `checkCount`. */
export function checkShape(where: string, shape: Shape, name = 'shape'): void {
  checkWholes(where, name, shape, 0)
  checkCount(where, shape, name)
}

/** errors: `shape.unsupported`, naming `where` and the argument, for more elements than an array can have. */
export function checkCount(where: string, shape: Shape, name = 'shape'): void {
  if (countElements(shape) <= maxElements) return
  throw new ShapeError(
    'shape.unsupported',
    `${where}: ${name} must have at most ${maxElements} elements, got ${formatShape(shape)}. Use a smaller size.`,
  )
}

/** The number of elements of a shape; 1 for a scalar. */
export const countElements = (shape: Shape): number => shape.reduce((product, d) => product * d, 1)

/** Bytes of a tensor on the device: whole words, at least one. */
export const bytesOf = ({ shape, dtype }: TensorType): number =>
  Math.max(4, Math.ceil(countElements(shape) / (dtype === 'f16' ? 2 : 1)) * 4)

const maxDims = 16

/** `[64, 784]`; of a list of more than 16 numbers, the first ones and how many there are. */
export const formatShape = (shape: Shape): string =>
  shape.length <= maxDims
    ? `[${shape.join(', ')}]`
    : `[${shape.slice(0, maxDims).join(', ')}, … of ${shape.length}]`

export const sameShape = (a: Shape, b: Shape): boolean =>
  a.length === b.length && a.every((d, i) => d === b[i])

/** Row-major strides in elements. */
export function stridesOf(shape: Shape): number[] {
  const strides = new Array<number>(shape.length)
  let stride = 1
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    strides[axis] = stride
    stride *= shape[axis]
  }
  return strides
}

/**
 * The shape of an elementwise result after NumPy's broadcasting rules.
 *
 * errors: `shape.mismatch`, naming `where`, both shapes and the axis counted from the right.
 */
export function broadcastShapes(where: string, a: Shape, b: Shape): Shape {
  const rank = Math.max(a.length, b.length)
  return Array.from({ length: rank }, (_, axis) => {
    const fromA = a[axis - (rank - a.length)] ?? 1
    const fromB = b[axis - (rank - b.length)] ?? 1
    if (fromA !== fromB && fromA !== 1 && fromB !== 1) {
      throw new ShapeError(
        'shape.mismatch',
        `${where}: dimension ${axis} must agree or be 1, got ${formatShape(a)} and ${formatShape(b)}. Reshape one of them.`,
      )
    }
    return fromA === 1 ? fromB : fromA
  })
}

/**
 * Binds the letters of shape patterns such as `"M K"` to sizes and returns them.
 *
 * errors: `shape.mismatch`, naming the op, the letter (or its name in `words`) and both tensors.
 */
export function unify(
  op: string,
  operands: readonly (readonly [name: string, pattern: string, shape: Shape])[],
  words: Readonly<Record<string, string>> = {},
): Record<string, number> {
  const bound: Record<string, { size: number; name: string; shape: Shape }> = {}
  for (const [name, pattern, shape] of operands) {
    const letters = pattern.split(' ').filter(Boolean)
    if (letters.length !== shape.length) {
      throw new ShapeError(
        'shape.mismatch',
        `${op}: ${name} must have ${letters.length} dimensions (${pattern}), got ${formatShape(shape)}. Reshape it.`,
      )
    }
    letters.forEach((letter, axis) => {
      const earlier = bound[letter]
      if (earlier && earlier.size !== shape[axis]) {
        throw new ShapeError(
          'shape.mismatch',
          `${op}: ${words[letter] ?? letter} must agree, got ${earlier.size} in ${earlier.name}${formatShape(earlier.shape)} and ${shape[axis]} in ${name}${formatShape(shape)}. Check the order of the dimensions.`,
        )
      }
      bound[letter] ??= { size: shape[axis], name, shape }
    })
  }
  return Object.fromEntries(Object.entries(bound).map(([letter, { size }]) => [letter, size]))
}

/** An axis counted from 0; negative ones count from the back. errors: `shape.mismatch`, naming `where` and the argument. */
export function resolveAxis(where: string, name: string, shape: Shape, axis: number): number {
  const resolved = Number.isInteger(axis) && axis < 0 ? axis + shape.length : axis
  if (!Number.isInteger(axis) || resolved < 0 || resolved >= shape.length) {
    throw new ShapeError(
      'shape.mismatch',
      `${where}: ${name} must be a dimension of ${formatShape(shape)}, got ${quoted(axis)}. Dimensions count from 0, or from -1 at the end.`,
    )
  }
  return resolved
}

/** Distinct axes counted from 0. errors: `shape.mismatch`, naming `where` and the argument. */
export function resolveAxes(
  where: string,
  name: string,
  shape: Shape,
  axes: readonly number[],
): number[] {
  checkWholes(where, name, axes)
  const resolved = axes.map((axis) => resolveAxis(where, name, shape, axis))
  if (new Set(resolved).size !== resolved.length) {
    throw new ShapeError(
      'shape.mismatch',
      `${where}: ${name} must be distinct dimensions, got ${formatShape(axes)}. Name each dimension once.`,
    )
  }
  return resolved
}
