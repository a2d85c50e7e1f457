import { clipped, clippedName } from '../util/clipped.ts'
import { isText } from '../util/kind-of.ts'
import { checkList, checkOptions, checkText } from '../util/options.ts'
import { type ByteSource, openFile } from './byte-source.ts'
import type { FileArray, FileNumbers } from './descriptions.ts'
import { countOf, elementsIn, type NumpyCode, numpyTypes, requireSize } from './elements.ts'
import { foreignFile } from './foreign.ts'
import { malformed } from './malformed.ts'
import { joined } from './unpack.ts'
import { ZipArchive } from './zip.ts'

/**
 * NumPy's files: `.npy` holds one array, `.npz` is a ZIP archive of such files.
 *
 *     6 bytes   0x93 "NUMPY"
 *     2 bytes   version: 1.0, 2.0 or 3.0
 *     2 bytes   N, the header's size, little-endian; 4 bytes from version 2.0 on
 *     N bytes   a Python dict: { 'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
 *     then      the elements, and nothing after them
 *
 * source: numpy.lib.format's documentation.
 */

const magic = '\x93NUMPY'
const prefixBytes = 12
/** NumPy itself reads headers of 10,000 characters unless its caller says that a file is safe. */
const maxHeaderBytes = 2 ** 16
const maxDimensions = 64

/** What other types are, by their letter. */
const otherTypes: Readonly<Record<string, string>> = {
  O: 'Python objects',
  c: 'complex numbers',
  f: 'floats of this width',
  S: 'texts',
  a: 'texts',
  U: 'texts',
  M: 'dates',
  m: 'time spans',
  V: 'raw bytes',
}
const otherRemedy: Readonly<Record<string, string>> = {
  O: "Save numbers, for example array.astype('float32').",
  c: 'Save array.real and array.imag.',
  S: 'Save numbers, for example those of np.unique(array, return_inverse=True).',
  U: 'Save numbers, for example those of np.unique(array, return_inverse=True).',
}

interface Header {
  readonly type: NumpyCode
  readonly isLittle: boolean
  readonly isFortran: boolean
  readonly shape: readonly number[]
  /** Where the elements begin. */
  readonly at: number
  /** Of all elements. */
  readonly sizeBytes: number
}

/** The size of the file's part up to its elements; undefined while `head` has too few bytes. errors: as `parseHeader`. */
function headerEnd(head: Uint8Array, where: string): number | undefined {
  const begin = String.fromCharCode(...head.subarray(0, magic.length))
  if (begin === '' || !magic.startsWith(begin))
    throw (
      foreignFile(where, 'an array of NumPy (.npy)', head) ??
      malformed(where, 'the first bytes 0x93 NUMPY', 'others')
    )
  if (head.length < prefixBytes) return undefined
  const version = head[6]
  if (version < 1 || version > 3)
    throw malformed(where, 'version 1, 2 or 3 of the format', `${version}`)
  const view = new DataView(head.buffer, head.byteOffset, head.byteLength)
  const length = version === 1 ? view.getUint16(8, true) : view.getUint32(8, true)
  if (length > maxHeaderBytes)
    throw malformed(where, `a header of at most ${maxHeaderBytes} bytes`, `${length}`)
  return (version === 1 ? 10 : 12) + length
}

function parseHeader(head: Uint8Array, where: string): Header {
  const at = headerEnd(head, where)
  if (at === undefined || head.length < at)
    throw malformed(where, `a header of ${at ?? prefixBytes} bytes`, `${head.length} (truncated)`)
  const text = new TextDecoder().decode(head.subarray(head[6] === 1 ? 10 : 12, at))
  const textOf = (key: string, value: RegExp, expected: string) => {
    const found = new RegExp(`['"]${key}['"]\\s*:\\s*(${value.source})`).exec(text)
    if (!found) throw malformed(where, `a header with ${expected}`, `"${clipped(text.trim())}"`)
    return found[1]
  }
  const descr = textOf('descr', /'[^']*'|"[^"]*"|\[/, "'descr': a type")
  const order = textOf('fortran_order', /True|False/, "'fortran_order': True or False")
  const shape = textOf('shape', /\([\d,\sL]*\)/, "'shape': whole numbers")
    .slice(1, -1)
    .split(',')
    .filter((dim) => dim.trim() !== '')
    .map((dim) => Number(dim.trim().replace(/L$/, '')))
  if (shape.length > maxDimensions || !shape.every(Number.isSafeInteger))
    throw malformed(where, `a shape of at most ${maxDimensions} sizes`, clipped(`${shape}`))
  const { type, isLittle } = parseType(descr, where)
  const sizeBytes = countOf(shape) * Number(type[1])
  return { type, isLittle, isFortran: order === 'True', shape, at, sizeBytes }
}

function parseType(descr: string, where: string): Pick<Header, 'type' | 'isLittle'> {
  if (descr === '[')
    throw malformed(
      where,
      'numbers',
      'records of several fields',
      "Save each field, for example array['name'].",
    )
  const text = descr.slice(1, -1)
  const [, order, type] = /^([<>|=]?)([a-zA-Z?]\d*)/.exec(text) ?? []
  if (type !== undefined && Object.hasOwn(numpyTypes, type) && text === order + type)
    return { type: type as NumpyCode, isLittle: order !== '>' }
  const letter = type?.[0] ?? ''
  const is = Object.hasOwn(otherTypes, letter) ? otherTypes[letter] : 'another type'
  throw malformed(
    where,
    'numbers (bool, int, uint or float of 16 to 64 bits)',
    `${is} (${clipped(text)})`,
    Object.hasOwn(otherRemedy, letter)
      ? otherRemedy[letter]
      : "Save it as another type, for example array.astype('float32').",
  )
}

/** The array of a whole file. errors: `data.malformed`. */
function parseNpy(bytes: Uint8Array<ArrayBuffer>, where: string): FileArray {
  const { type, isLittle, isFortran, shape, at } = parseHeader(bytes, where)
  const data = elementsIn(bytes.subarray(at), numpyTypes[type], { shape, isLittle, where })
  return { shape, data: isFortran && data.length > 0 ? rowMajor(data, shape) : data }
}

/** The elements with the last dimension fastest, of those with the first fastest. */
function rowMajor(data: FileNumbers, shape: readonly number[]): FileNumbers {
  const out = data.slice()
  const place = shape.map(() => 0)
  const strides = shape.map((_, k) => shape.slice(0, k).reduce((product, dim) => product * dim, 1))
  let from = 0
  for (let to = 0; to < out.length; to++) {
    out[to] = data[from]
    for (let k = shape.length - 1; k >= 0; k--) {
      from += strides[k]
      if (++place[k] < shape[k]) break
      from -= strides[k] * shape[k]
      place[k] = 0
    }
  }
  return out
}

/**
 * Returns the array in a `.npy` file of NumPy, in row-major order: its own type, float16 as float32, bool as bytes of 0 and 1, and whole
 * numbers of 64 bits in 32.
 *
 * `source` is an address, a picked, dropped or downloaded file, or the bytes, of which the result may be a view; `name` is used in errors
 * for bytes and blobs without a name.
 * errors: `data.missing` if it cannot be read; `data.malformed` if it does not follow the format, holds no numbers (complex, objects,
 * texts, records), or 64-bit numbers that do not fit into 32 bits.
 */
export async function readNpy(source: ByteSource, name = 'npy file'): Promise<FileArray> {
  checkText('readNpy', 'name', name)
  const file = await openFile(source, clippedName(name))
  return parseNpy(await file.read(0, file.sizeBytes), clippedName(file.name))
}

export interface NpzOptions {
  /** Names of the arrays to read. Default: all. */
  arrays?: readonly string[]
}

/**
 * Returns the arrays of a `.npz` file of NumPy by name, of `np.savez` or `np.savez_compressed`, each as `readNpy`.
 *
 * errors: as `readNpy`, of each array that is read; `data.malformed` for a damaged archive and for a name in `arrays` that it does not have.
 */
export async function readNpz(
  source: ByteSource,
  name = 'npz file',
  options: NpzOptions = {},
): Promise<Record<string, FileArray>> {
  checkText('readNpz', 'name', name)
  const { arrays } = checkOptions('readNpz', options, { arrays: true })
  if (arrays !== undefined) checkList('readNpz', 'arrays', arrays, isText, 'texts')
  const archive = await ZipArchive.open(source, name)
  const all = [...archive.entries.keys()].map((entry) => entry.replace(/\.npy$/, ''))
  const found: [string, FileArray][] = []
  for (const array of arrays ?? all) {
    if (!all.includes(array))
      throw malformed(
        archive.name,
        `an array "${clipped(array)}"`,
        clipped(all.join(', ')) || 'none',
        'Correct the name.',
      )
    found.push([array, await readEntry(archive, array)])
  }
  return Object.fromEntries(found)
}

async function readEntry(archive: ZipArchive, array: string): Promise<FileArray> {
  const entry = archive.entries.get(`${array}.npy`) ?? archive.entries.get(array)!
  const where = `${archive.name}, array "${clipped(array)}"`
  const parts: Uint8Array<ArrayBuffer>[] = []
  let isKnown = false
  for await (const part of archive.parts(entry.name)) {
    parts.push(part)
    if (isKnown) continue
    // A small archive may be made to unpack to far more than its array.
    const head = joined(parts)
    const end = headerEnd(head, where)
    if (end === undefined || head.length < end) continue
    const { at, sizeBytes, shape } = parseHeader(head, where)
    requireSize(entry.sizeBytes - at, sizeBytes, shape, where)
    isKnown = true
  }
  return parseNpy(joined(parts), where)
}
