import { clipped, clippedName } from '../util/clipped.ts'
import { DataError } from '../util/errors.ts'
import { isDetached, isOf, isPlain, kindOf, quoted } from '../util/kind-of.ts'
import { checkArgument } from '../util/options.ts'
import { withArticle } from '../util/with-article.ts'
import type { SafetensorsDtype } from './elements.ts'
import { readSafetensors, type SafeTensor, writeSafetensors } from './safetensors.ts'

/**
 * Nested state in one safetensors file: the counterpart of torch.save and torch.load.
 *
 * Arrays become tensors named by their path (`model.0.weight`), so other programs can read them. The rest is JSON under `tabring` in the
 * file's metadata, with `{ "$tensor": name }` in place of each array. Numbers that JSON does not support become `{ "$number": "NaN" }`.
 */
export type Saved =
  | null
  | boolean
  | number
  | string
  | SavedArray
  | SavedTensor
  | readonly Saved[]
  | { readonly [key: string]: Saved | undefined }

export type SavedArray =
  | Float32Array<ArrayBuffer>
  | Float64Array<ArrayBuffer>
  | Int32Array<ArrayBuffer>
  | Uint32Array<ArrayBuffer>
  | Uint8Array<ArrayBuffer>

/** An array with its shape, as in state dicts. */
export interface SavedTensor {
  readonly shape: readonly number[]
  readonly data: SavedArray
}

export type SavedState = { readonly [key: string]: Saved | undefined }

const metadataKey = 'tabring'
/** Levels of a state. A deeper one would end the stack of who reads it. */
const maxDepth = 100
const version = 1

const dtypes: readonly [new (length: number) => SavedArray, SafetensorsDtype][] = [
  [Float32Array, 'F32'],
  [Float64Array, 'F64'],
  [Int32Array, 'I32'],
  [Uint32Array, 'U32'],
  [Uint8Array, 'U8'],
]

const dtypeOf = (value: unknown): SafetensorsDtype | undefined =>
  isDetached(value) ? undefined : dtypes.find(([array]) => isOf(value, array))?.[1]

const isTensor = (value: object): value is SavedTensor =>
  'shape' in value &&
  'data' in value &&
  Object.keys(value).length === 2 &&
  dtypeOf(value.data) !== undefined

const refuse = (path: readonly string[], expected: string, got: string): DataError =>
  new DataError(
    'data.malformed',
    `save: ${clippedName(path.join('.')) || 'state'}: expected ${expected}, got ${got}. Convert it to plain values first.`,
  )

/**
 * Returns the bytes of a file that contains `state`. Equal states give equal bytes.
 *
 * errors: `data.malformed`, naming the path, for values that are neither plain nor arrays: functions, class instances, keys that start with
 * `$`.
 */
export function save(state: SavedState, ...rest: []): Uint8Array<ArrayBuffer> {
  const [options] = rest as unknown[]
  checkArgument(
    'save',
    'options',
    options,
    options === undefined,
    'left out: save(state) returns the bytes of a .safetensors file, and saveModel with { format: "pt" }, or writeTorch, those of a .pt',
  )
  const tensors = new Map<string, SafeTensor>()
  const add = (path: readonly string[], shape: readonly number[], data: SavedArray): string => {
    let name = path.join('.')
    while (tensors.has(name)) name += "'"
    tensors.set(name, { dtype: dtypeOf(data)!, shape, data } as SafeTensor)
    return name
  }
  const encode = (value: unknown, path: readonly string[]): unknown => {
    if (value === null || typeof value === 'boolean' || typeof value === 'string') return value
    if (typeof value === 'number') {
      return Number.isFinite(value) && !Object.is(value, -0)
        ? value
        : { $number: Object.is(value, -0) ? '-0' : String(value) }
    }
    if (typeof value !== 'object') throw refuse(path, 'a plain value or an array', typeof value)
    if (path.length > maxDepth)
      throw refuse([], `at most ${maxDepth} levels`, 'more, or an object in itself')
    if (dtypeOf(value)) {
      const data = value as SavedArray
      return { $tensor: add(path, [data.length], data), plain: true }
    }
    if (isTensor(value)) return { $tensor: add(path, value.shape, value.data) }
    if (Array.isArray(value)) return value.map((item, i) => encode(item, [...path, String(i)]))
    if (!isPlain(value)) {
      const own = withArticle(value.constructor?.name ?? 'class instance')
      throw refuse(path, 'a plain object', isDetached(value) ? kindOf(value) : own)
    }
    const entries = Object.entries(value).filter(([, item]) => item !== undefined)
    const reserved = entries.find(([key]) => key.startsWith('$'))
    if (reserved) throw refuse(path, 'keys that do not start with "$"', `"${clipped(reserved[0])}"`)
    return Object.fromEntries(entries.map(([key, item]) => [key, encode(item, [...path, key])]))
  }
  const tree = encode(state, [])
  return writeSafetensors(tensors, { [metadataKey]: JSON.stringify({ version, state: tree }) })
}

/**
 * Returns the state in a file written by `save`.
 *
 * errors: `data.malformed` for any other file; `readSafetensors` reads plain weights.
 */
export function load(source: Uint8Array<ArrayBuffer> | ArrayBuffer, name = 'load'): SavedState {
  const { tensors, metadata } = readSafetensors(source, name)
  const where = clippedName(name)
  const malformed = (expected: string, got: string) =>
    new DataError(
      'data.malformed',
      `${where}: expected ${expected}, got ${got}. Load a file written by save(); readSafetensors() reads plain weights.`,
    )
  if (!(metadataKey in metadata)) throw malformed(`the entry "${metadataKey}"`, 'none')
  const decode = (value: unknown, depth = 0): Saved => {
    if (value === null || typeof value !== 'object') return value as Saved
    if (depth === maxDepth) throw malformed(`at most ${maxDepth} levels`, 'more')
    if (Array.isArray(value)) return value.map((item) => decode(item, depth + 1))
    if ('$number' in value) {
      if (typeof value.$number !== 'string')
        throw malformed('a number as text', quoted(value.$number))
      return Number(value.$number)
    }
    if ('$tensor' in value) {
      const tensor = typeof value.$tensor === 'string' && tensors.get(value.$tensor)
      if (!tensor) throw malformed('the name of a tensor in the file', quoted(value.$tensor))
      const data = tensor.data as SavedArray
      return 'plain' in value ? data : { shape: tensor.shape, data }
    }
    return Object.fromEntries(
      Object.entries(value).map(([key, item]) => [key, decode(item, depth + 1)]),
    )
  }
  let header: { version?: unknown; state?: unknown }
  try {
    header = JSON.parse(metadata[metadataKey])
  } catch {
    throw malformed('JSON', clipped(metadata[metadataKey]))
  }
  if (header?.version !== version) throw malformed(`version ${version}`, quoted(header?.version))
  if (!header.state || typeof header.state !== 'object' || Array.isArray(header.state))
    throw malformed('a state by names', quoted(header.state))
  return decode(header.state) as SavedState
}
