import type { StoredData } from '../graph/trace/stored-tensor.ts'
import { unpackHalves } from '../kernels/half.ts'
import { clipped } from '../util/clipped.ts'
import { DataError } from '../util/errors.ts'
import { isWhole } from '../util/is-whole.ts'
import { hasNames, isOf, quoted } from '../util/kind-of.ts'
import { countElements, formatShape, type Shape } from '../util/shape.ts'

/** Input of `loadStateDict`: entries of a state dict, or tensors from `readSafetensors`. */
export type LoadableState = Readonly<Record<string, LoadableTensor>>

export interface LoadableTensor {
  readonly shape: Shape
  readonly data:
    | Float64Array<ArrayBuffer>
    | Float32Array<ArrayBuffer>
    | BigInt64Array<ArrayBuffer>
    | BigUint64Array<ArrayBuffer>
    | Int32Array<ArrayBuffer>
    | Uint32Array<ArrayBuffer>
    | Int16Array<ArrayBuffer>
    | Uint16Array<ArrayBuffer>
    | Int8Array<ArrayBuffer>
    | Uint8Array<ArrayBuffer>
  /** `F16` and `BF16`: a Uint16Array holds the bits of such floats. */
  readonly dtype?: string
}

/** errors: `data.malformed` for what is no state of tensors by key. */
export function requireTensors(keys: Iterable<string>, state: unknown): void {
  const refuse = (what: string, got: unknown) =>
    new DataError(
      'data.malformed',
      `loadStateDict: expected ${what}, got ${quoted(got)}. Load a file saved for this model.`,
    )
  if (!hasNames(state)) throw refuse('tensors by key, as await model.stateDict() gives', state)
  for (const key of keys) {
    if (!Object.hasOwn(state, key)) continue
    const { shape, data } = (Reflect.get(state, key) ?? {}) as Partial<LoadableTensor>
    if (!Array.isArray(shape) || shape.length > maxDims || !shape.every(isWhole))
      throw refuse(`a shape of whole numbers for "${clipped(key)}"`, shape)
    if (!ArrayBuffer.isView(data) || isOf(data, DataView))
      throw refuse(`a typed array for "${clipped(key)}"`, data)
    const count = countElements(shape)
    if (data.length !== count)
      throw refuse(`${count} elements of ${formatShape(shape)} for "${clipped(key)}"`, data)
  }
}

const maxDims = 100

/**
 * The numbers of a tensor in a parameter's or buffer's own type; floats are rounded to nearest. Those of f32 may be the tensor's own array.
 *
 * errors: `data.malformed`, naming the key, for numbers that 32 bits do not hold.
 */
export function stateValues(
  key: string,
  { data, dtype }: LoadableTensor,
  target: 'f32' | 'i32',
): StoredData {
  const numbers = isOf(data, BigInt64Array, BigUint64Array)
    ? Float64Array.from(data, Number)
    : isOf(data, Uint16Array)
      ? wordsAs(dtype, data)
      : data
  const isFloat = target === 'f32'
  const isTooLarge = (value: number) =>
    isFloat
      ? Number.isFinite(value) && !Number.isFinite(Math.fround(value))
      : Math.trunc(value) !== (value | 0)
  const tooLarge = isFloat && !isOf(data, Float64Array) ? undefined : numbers.find(isTooLarge)
  if (tooLarge !== undefined)
    throw new DataError(
      'data.malformed',
      `loadStateDict: "${clipped(key)}": expected ${isFloat ? 'numbers that float32 holds' : 'whole numbers of 32 bits'}, got ${tooLarge}. Load a file saved for this model.`,
    )
  if (isFloat) return isOf(numbers, Float32Array) ? numbers : Float32Array.from(numbers)
  return Int32Array.from(numbers)
}

function wordsAs(
  dtype: string | undefined,
  words: Uint16Array<ArrayBuffer>,
): Float32Array<ArrayBuffer> {
  // The upper half of a float32.
  if (dtype === 'BF16') {
    const bits = new Uint32Array(words.length)
    for (let i = 0; i < bits.length; i++) bits[i] = words[i] << 16
    return new Float32Array(bits.buffer)
  }
  if (dtype !== 'F16') return Float32Array.from(words)
  const pairs = new Uint32Array(Math.ceil(words.length / 2))
  new Uint16Array(pairs.buffer).set(words)
  return unpackHalves(pairs, words.length)
}
