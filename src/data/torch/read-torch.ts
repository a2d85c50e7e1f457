import { clipped, clippedName } from '../../util/clipped.ts'
import { DataError } from '../../util/errors.ts'
import { checkText } from '../../util/options.ts'
import { type ByteSource, openFile } from '../byte-source.ts'
import type { SafeTensor } from '../safetensors.ts'
import { NumpyArray } from './numpy.ts'
import { Dict, Known, Refused } from './pickle-reader.ts'
import { elementsOf, isStorage, StoredTensor, viewOf } from './tensors.ts'
import { openTorch, type TorchFile } from './torch-file.ts'

/**
 * A value of torch.save in JavaScript. Dicts are objects, whose keys are texts; lists, tuples and sets are arrays; whole numbers beyond 2^53
 * are bigints. Tensors and numpy arrays are typed arrays with shapes. Types of elements and devices are texts, such as `torch.float16`.
 */
export type TorchValue =
  | null
  | boolean
  | number
  | bigint
  | string
  | Uint8Array<ArrayBuffer>
  | SafeTensor
  | readonly TorchValue[]
  | { readonly [key: string]: TorchValue }

/** Levels of a value. A deeper one would end the stack of who reads it. */
export const maxDepth = 100
/** Tensors may share their bytes or repeat them, but not without end. */
const maxTimes = 16
const spareBytes = 2 ** 24

/**
 * Returns what torch.save wrote: PyTorch's counterpart is torch.load(file, map_location="cpu", weights_only=True).
 *
 * Nothing in the file is run. Tensors are read one storage after the other, so a picked file is never in memory as a whole. Tensors with
 * the same elements of one storage, as tied weights are, share their array.
 * errors: `data.malformed`, naming each class whose objects are neither tensors nor containers, and for damaged files; `data.missing`.
 */
export async function readTorch(source: ByteSource, name = 'PyTorch file'): Promise<TorchValue> {
  checkText('readTorch', 'name', name)
  const file = await openTorch(await openFile(source, clippedName(name)))
  return readValue(file, file.value)
}

/** Returns a part of a file's value, as `readTorch`; what else the file holds is not read. */
export async function readValue(file: TorchFile, part: unknown): Promise<TorchValue> {
  const reader = new ValueReader(file)
  const value = reader.convert(part, [])
  await reader.readTensors()
  return value
}

/** What is saved in the place of what is refused, by its name. */
const remedies: readonly (readonly [RegExp, string])[] = [
  [/^torch\._utils\._rebuild_sparse/, 'save a dense copy of a sparse tensor (x.to_dense())'],
  [/^torch\..*complex/i, 'save a complex tensor as real ones (torch.view_as_real(x), or x.real)'],
  [/^torch\..*(qtensor|quint|qint)/i, 'save a quantized tensor as floats (x.dequantize())'],
  [/^/, "save the model's state_dict() instead"],
]

/** A tensor of the result before its elements are read. */
interface Unread {
  readonly tensor: StoredTensor
  readonly result: { dtype: string; shape: readonly number[]; data: unknown }
}

class ValueReader {
  readonly #file: TorchFile
  readonly #seen = new Map<unknown, TorchValue>()
  readonly #tensors: Unread[] = []
  readonly #refused = new Map<string, string>()

  constructor(file: TorchFile) {
    this.#file = file
  }

  convert(given: unknown, path: readonly string[]): TorchValue {
    const value = plainOf(given)
    if (typeof value !== 'object' || value === null) return value as TorchValue
    if (path.length > maxDepth)
      throw this.#malformed('', `at most ${maxDepth} levels`, 'more, or an object in itself')
    const seen = this.#seen.get(given)
    if (seen !== undefined) return seen
    const made = this.#make(value, path)
    this.#seen.set(given, made)
    return made
  }

  #make(value: object, path: readonly string[]): TorchValue {
    if (value instanceof Uint8Array) return value as Uint8Array<ArrayBuffer>
    if (Array.isArray(value))
      return value.map((item, i) => this.convert(item, [...path, String(i)]))
    if (value instanceof StoredTensor) return this.#tensor(value, path)
    if (value instanceof Dict) return this.#record(value, path)
    const name = value instanceof Refused ? value.name : 'object'
    if (!this.#refused.has(name)) this.#refused.set(name, path.join('.'))
    return null
  }

  #record(dict: Dict, path: readonly string[]): TorchValue {
    const record = new Map<string, TorchValue>()
    for (const [key, item] of dict.entries) {
      if (typeof key !== 'string' && typeof key !== 'number' && typeof key !== 'bigint')
        throw this.#malformed(path.join('.'), 'keys that are texts or numbers', 'another')
      const name = String(key)
      if (record.has(name))
        throw this.#malformed(
          path.join('.'),
          'keys that differ as texts',
          `two of "${clipped(name)}"`,
        )
      record.set(name, this.convert(item, [...path, name]))
    }
    return Object.fromEntries(record)
  }

  #tensor(tensor: StoredTensor, path: readonly string[]): TorchValue {
    const { dtype, storage, shape } = tensor
    if (!dtype) {
      const kind = `torch.Tensor of a ${storage.typeName}`
      if (!this.#refused.has(kind)) this.#refused.set(kind, path.join('.'))
      return null
    }
    const result = { dtype, shape, data: undefined }
    this.#tensors.push({ tensor, result })
    return result as unknown as SafeTensor
  }

  /** Fills the tensors of all that was converted. */
  async readTensors(): Promise<void> {
    this.#refuse()
    const total = this.#tensors.reduce(
      (sum, { tensor }) => sum + tensor.length * tensor.itemBytes,
      0,
    )
    const max = maxTimes * this.#file.sizeBytes + spareBytes
    if (!(total <= max))
      throw this.#malformed(
        '',
        `tensors of at most ${max} bytes in a file of ${this.#file.sizeBytes}`,
        `${total}`,
      )
    const byStorage = new Map<unknown, Unread[]>()
    for (const one of this.#tensors) {
      const { bytes, key } = one.tensor.storage
      const views = byStorage.get(bytes ?? key)
      if (views) views.push(one)
      else byStorage.set(bytes ?? key, [one])
    }
    for (const views of byStorage.values()) await this.#readViews(views)
  }

  async #readViews(views: readonly Unread[]): Promise<void> {
    const [{ tensor }] = views
    const { storage } = tensor
    const record = storage.bytes ?? (await this.#file.read(storage))
    const isBigEndian = storage.isBigEndian ?? this.#file.isBigEndian
    const made = new Map<string, SafeTensor>()
    for (const { tensor, result } of views) {
      const { dtype, shape, strides, offset } = tensor
      const view = JSON.stringify([dtype, tensor.storage.begin, offset, shape, strides])
      const read = made.get(view) ?? elementsOf(tensor, dtype!, record, isBigEndian)
      made.set(view, read)
      Object.assign(result, read)
    }
  }

  #refuse(): void {
    if (this.#refused.size === 0) return
    const list = [...this.#refused].map(([name, path]) =>
      path === '' ? clipped(name) : `${clipped(name)} ("${clipped(path)}")`,
    )
    const names = [...this.#refused.keys()]
    const instead = names.map((name) => remedies.find(([kind]) => kind.test(name))![1])
    const what = list.length === 1 ? 'an object of class' : 'objects of the classes'
    throw new DataError(
      'data.malformed',
      `${this.#file.name}: holds ${what} ${clipped(list.join(', '), 400)}. Only tensors, numbers, texts and containers are read: ${[...new Set(instead)].join('; ')}.`,
    )
  }

  #malformed(path: string, expected: string, got: string): DataError {
    const where = path === '' ? this.#file.name : `${this.#file.name}: "${clipped(path)}"`
    return new DataError(
      'data.malformed',
      `${where}: expected ${expected}, got ${got}. Save it with PyTorch as plain values.`,
    )
  }
}

/** The value for an object that is no container: a tensor, or `Refused`. */
function plainOf(object: unknown): unknown {
  if (object instanceof NumpyArray) return object.tensor ?? new Refused('numpy.ndarray')
  if (object instanceof Known) return new Refused(object.name)
  return isStorage(object) ? viewOf(object, [0, [object.length], [1]]) : object
}
