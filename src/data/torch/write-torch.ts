import { clipped, clippedName } from '../../util/clipped.ts'
import { DataError } from '../../util/errors.ts'
import { isDetached, isOf, isPlain, isRecord, quoted } from '../../util/kind-of.ts'
import { elementArrays, type SafetensorsDtype } from '../elements.ts'
import { writeZip } from '../zip.ts'
import { maxDepth, type TorchValue } from './read-torch.ts'
import { isSizes, storageTypes, stridesOf } from './tensors.ts'

/**
 * Returns the bytes of a file that torch.load reads, of PyTorch 1.6 and later, also with `weights_only=True`. Equal values give equal bytes.
 *
 * Objects become dicts, arrays lists, and whole numbers ints, as do keys where all are whole numbers and no value is a tensor. Tensors are
 * `{ shape, data }`, also with a `dtype`, such as the entries of state dicts; those with one array share their storage.
 * errors: `data.malformed`, naming the path, for other values, for texts that UTF-8 does not hold, and for U16, U32 and
 * U64, which PyTorch 1 has not.
 */
export function writeTorch(value: TorchValue | object): Uint8Array<ArrayBuffer> {
  const pickle = new Pickle()
  pickle.put(value, [])
  const text = (line: string) => new TextEncoder().encode(line)
  return writeZip([
    ['archive/data.pkl', pickle.end()],
    ['archive/byteorder', text('little')],
    ...[...pickle.storages.keys()].map(
      (data, key) =>
        [
          `archive/data/${key}`,
          new Uint8Array(data.buffer, data.byteOffset, data.byteLength),
        ] as const,
    ),
    ['archive/version', text('3\n')],
  ])
}

const storageNames = new Map(
  Object.entries(storageTypes).flatMap(([name, { dtype }]) =>
    dtype && name !== 'UntypedStorage' ? [[dtype, name] as const] : [],
  ),
)

interface Tensor {
  readonly dtype?: SafetensorsDtype
  readonly shape: readonly number[]
  readonly data: ArrayBufferView & { readonly length: number }
}

const isTensor = (value: object): value is Tensor =>
  'data' in value && ArrayBuffer.isView(value.data) && 'shape' in value

const dtypeOf = (data: ArrayBufferView) =>
  isOf(data, Uint16Array)
    ? 'U16'
    : (Object.keys(elementArrays) as SafetensorsDtype[]).find((dtype) =>
        isOf(data, elementArrays[dtype]),
      )

/** A pickle in the making, of protocol 2 and of those opcodes that PyTorch's restricted reader knows. */
class Pickle {
  /** Arrays of the tensors, in the order of their keys. */
  readonly storages = new Map<ArrayBufferView, number>()
  #bytes = new Uint8Array(1024)
  #length = 0

  constructor() {
    this.#op('\x80\x02')
  }

  /** Returns the whole. */
  end(): Uint8Array {
    this.#op('.')
    return this.#bytes.subarray(0, this.#length)
  }

  put(value: unknown, path: readonly string[]): void {
    if (path.length > maxDepth)
      throw refuse([], `at most ${maxDepth} levels`, 'more, or an object in itself')
    if (value === null) this.#op('N')
    else if (typeof value === 'boolean') this.#op(value ? '\x88' : '\x89')
    else if (typeof value === 'string') this.#text(value, path)
    else if (typeof value === 'bigint') this.#int(value, path)
    else if (Number.isSafeInteger(value) && !Object.is(value, -0))
      this.#int(BigInt(value as number), path)
    else if (typeof value === 'number') this.#add('G', 8, (view) => view.setFloat64(0, value))
    else if (typeof value !== 'object')
      throw refuse(path, 'a plain value or a tensor', quoted(value))
    else if (isOf(value, Uint8Array) && !isDetached(value)) this.#encoded(value)
    else if (Array.isArray(value)) this.#list(value, path)
    else if (isTensor(value)) this.#tensor(value, path)
    else this.#dict(value, path)
  }

  #list(items: readonly unknown[], path: readonly string[]): void {
    this.#op('](')
    for (const [i, item] of items.entries()) this.put(item, [...path, String(i)])
    this.#op('e')
  }

  #dict(record: object, path: readonly string[]): void {
    if (!isPlain(record)) throw refuse(path, 'a plain object', quoted(record))
    this.#op('}(')
    const entries = Object.entries(record).filter(([, item]) => item !== undefined)
    const isByNumber = entries.every(
      ([key, item]) => /^(0|[1-9]\d{0,14})$/.test(key) && !(isRecord(item) && isTensor(item)),
    )
    for (const [key, item] of entries) {
      if (isByNumber) this.#int(BigInt(key), path)
      else this.#text(key, path)
      this.put(item, [...path, key])
    }
    this.#op('u')
  }

  #tensor(tensor: Tensor, path: readonly string[]): void {
    const { shape, data, dtype = dtypeOf(data) } = tensor
    const storage = dtype && storageNames.get(dtype)
    if (!storage)
      throw refuse(path, `a dtype among ${[...storageNames.keys()].join(' ')}`, quoted(dtype))
    if (!isSizes(shape)) throw refuse(path, 'a shape of whole numbers', quoted(shape))
    const length = shape.reduce((product, dim) => product * dim, 1)
    if (!isOf(data, elementArrays[dtype]) || data.length !== length || isDetached(data))
      throw refuse(path, `${length} elements of ${dtype} for [${shape}]`, quoted(data))
    const key = this.storages.get(data) ?? this.storages.size
    this.storages.set(data, key)
    this.#op('ctorch._utils\n_rebuild_tensor_v2\n((')
    this.#text('storage')
    this.#op(`ctorch\n${storage}\n`)
    this.#text(String(key))
    this.#text('cpu')
    this.#int(BigInt(length), path)
    this.#op('tQK\0')
    for (const sizes of [shape, stridesOf(shape)]) {
      this.#op('(')
      for (const size of sizes) this.#int(BigInt(size), path)
      this.#op('t')
    }
    this.#op('\x89ccollections\nOrderedDict\n)RtR')
  }

  /** Bytes as text: protocol 2 knows no others. */
  #encoded(bytes: Uint8Array): void {
    this.#op('c_codecs\nencode\n(')
    this.#text(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(''))
    this.#text('latin1')
    this.#op('tR')
  }

  #int(value: bigint, path: readonly string[]): void {
    if (BigInt.asIntN(32, value) === value) {
      this.#add('J', 4, (view) => view.setInt32(0, Number(value), true))
      return
    }
    let length = 8
    while (BigInt.asIntN(8 * length, value) !== value) length += 8
    if (length > 255) throw refuse(path, 'whole numbers of at most 248 bytes', 'a longer one')
    this.#add('\x8a', 1 + length, (view) => {
      view.setUint8(0, length)
      for (let i = 0; i < length; i++)
        view.setUint8(1 + i, Number(BigInt.asUintN(8, value >> BigInt(8 * i))))
    })
  }

  #text(text: string, path: readonly string[] = []): void {
    if (/\p{Surrogate}/u.test(text)) throw refuse(path, 'text', 'half of a surrogate pair in one')
    const bytes = new TextEncoder().encode(text)
    this.#add('X', 4 + bytes.length, (view) => {
      view.setUint32(0, bytes.length, true)
      new Uint8Array(view.buffer, view.byteOffset + 4, bytes.length).set(bytes)
    })
  }

  /** Opcodes one after the other, with the names of classes. */
  #op(codes: string): void {
    this.#add(codes, 0, () => undefined)
  }

  /** Opcodes, then an argument of `length` bytes. */
  #add(codes: string, length: number, write: (view: DataView) => void): void {
    const begin = this.#length + codes.length
    if (begin + length > this.#bytes.length) {
      const larger = new Uint8Array(2 * (begin + length))
      larger.set(this.#bytes)
      this.#bytes = larger
    }
    for (let i = 0; i < codes.length; i++) this.#bytes[this.#length + i] = codes.charCodeAt(i)
    write(new DataView(this.#bytes.buffer, begin, length))
    this.#length = begin + length
  }
}

const refuse = (path: readonly string[], expected: string, got: string): DataError =>
  new DataError(
    'data.malformed',
    `writeTorch: ${clippedName(path.join('.')) || 'the value'}: expected ${expected}, got ${clipped(got)}. Convert it to plain values and tensors first.`,
  )
