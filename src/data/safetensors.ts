import { clipped, clippedName } from '../util/clipped.ts'
import { isDetached, isIterable, isOf, isPlain, isRecord, isText, quoted } from '../util/kind-of.ts'
import { checkArgument, checkList, checkText } from '../util/options.ts'
import { withArticle } from '../util/with-article.ts'
import { asBytes, type OpenFile } from './byte-source.ts'
import { elementArrays, type SafetensorsDtype } from './elements.ts'
import { foreignBytes, foreignFile } from './foreign.ts'
import { malformed } from './malformed.ts'

/**
 * The safetensors file format, written and read.
 *
 *     8 bytes   N, the header's size: 64-bit unsigned, little-endian
 *     N bytes   the header: JSON object in UTF-8, beginning with `{`, padded with spaces at its end;
 *               name -> { dtype, shape, data_offsets: [begin, end] }, and `__metadata__` -> text to text
 *     then      the tensors' bytes, little-endian and row-major; offsets count from here, without hole or overlap
 *
 * source: the format section of huggingface/safetensors' README.
 */

export type ArrayOf<D extends SafetensorsDtype> = InstanceType<(typeof elementArrays)[D]>

/** A named array; `dtype` is the element type of `data`. shape: `data` holds the product of `shape` elements. */
export type SafeTensor = {
  [D in SafetensorsDtype]: { dtype: D; shape: readonly number[]; data: ArrayOf<D> }
}[SafetensorsDtype]

export interface SafetensorsFile {
  /** Tensors in the order of the file. */
  tensors: Map<string, SafeTensor>
  metadata: Record<string, string>
}

const lengthBytes = 8
const metadataKey = '__metadata__'
/** The reference reader's limit. */
const maxHeaderBytes = 100_000_000

const elementsOf = (shape: readonly number[]) => shape.reduce((product, dim) => product * dim, 1)

/**
 * Returns the bytes of a safetensors file with `tensors` in the given order.
 *
 * Tensors with larger elements come first in the file, so that each starts at a multiple of its element size; within one size the given
 * order applies. Equal input gives equal bytes.
 * errors: `data.malformed` if a shape does not fit its data, or a name is reserved.
 */
export function writeSafetensors(
  tensors: Iterable<readonly [name: string, tensor: SafeTensor]>,
  metadata: Readonly<Record<string, string>> = {},
): Uint8Array<ArrayBuffer> {
  const isNamed = (entry: unknown) =>
    Array.isArray(entry) &&
    typeof entry[0] === 'string' &&
    isRecord(entry[1]) &&
    ArrayBuffer.isView(entry[1].data) &&
    !isDetached(entry[1].data) &&
    Array.isArray(entry[1].shape)
  const given = isIterable(tensors) ? [...tensors] : tensors
  checkList(
    'writeSafetensors',
    'tensors',
    given as typeof given & [],
    isNamed,
    'pairs [name, { dtype, shape, data }]',
  )
  const isMetadata = isPlain(metadata) && Object.values(metadata).every(isText)
  checkArgument('writeSafetensors', 'metadata', metadata, isMetadata, 'texts by name')
  const names = given.map(([name]) => name)
  const seen = new Set<string>()
  const twice = names.find((name) => seen.size === seen.add(name).size)
  checkArgument('writeSafetensors', 'tensors', twice, twice === undefined, 'names that differ')
  const entries = given.toSorted(
    ([, a], [, b]) => b.data.BYTES_PER_ELEMENT - a.data.BYTES_PER_ELEMENT,
  )
  const fields: string[] = []
  if (Object.keys(metadata).length > 0)
    fields.push(`${JSON.stringify(metadataKey)}:${JSON.stringify(metadata)}`)
  let offset = 0
  for (const [name, { dtype, shape, data }] of entries) {
    if (name === metadataKey)
      throw malformed('writeSafetensors', 'a name that is not reserved', `"${metadataKey}"`)
    if (!Object.hasOwn(elementArrays, dtype))
      throw malformed(
        `writeSafetensors: "${clipped(name)}"`,
        `a dtype among ${Object.keys(elementArrays).join(' ')}`,
        quoted(dtype),
        'Correct it.',
      )
    const isShape = shape.every(isSize) && elementsOf(shape) === data.length
    if (!isOf(data, elementArrays[dtype]) || !isShape)
      throw malformed(
        `writeSafetensors: "${clipped(name)}"`,
        `${elementsOf(shape)} elements of ${dtype} for [${shape}]`,
        `${data.length} in ${withArticle(data.constructor.name)}`,
      )
    const end = offset + data.byteLength
    fields.push(
      `${JSON.stringify(name)}:${JSON.stringify({ dtype, shape, data_offsets: [offset, end] })}`,
    )
    offset = end
  }
  const json = new TextEncoder().encode(`{${fields.join(',')}}`)
  const headerBytes = Math.ceil(json.length / lengthBytes) * lengthBytes
  const file = new Uint8Array(lengthBytes + headerBytes + offset)
  new DataView(file.buffer).setBigUint64(0, BigInt(headerBytes), true)
  file.set(json, lengthBytes)
  file.fill(0x20, lengthBytes + json.length, lengthBytes + headerBytes)
  let at = lengthBytes + headerBytes
  for (const [, { data }] of entries) {
    file.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), at)
    at += data.byteLength
  }
  return file
}

/** A tensor in a file. `begin` and `end` count from where the tensors' bytes begin. units: bytes. */
export interface HeaderEntry {
  name: string
  dtype: SafetensorsDtype
  shape: number[]
  begin: number
  end: number
}

const isSize = (value: unknown): value is number =>
  Number.isSafeInteger(value) && Number(value) >= 0
function parseHeader(bytes: Uint8Array, where: string): Record<string, unknown> {
  let header: unknown
  try {
    header = JSON.parse(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes))
  } catch (cause) {
    throw Object.assign(malformed(where, 'a header of JSON in UTF-8', 'something else'), { cause })
  }
  if (bytes[0] !== 0x7b || !isRecord(header))
    throw malformed(where, 'a header that is a JSON object from its first byte', 'something else')
  return header
}

function parseEntry(name: string, value: unknown, where: string): HeaderEntry {
  const at = `${where}: "${clipped(name)}"`
  const { dtype, shape, data_offsets: offsets } = isRecord(value) ? value : {}
  if (typeof dtype !== 'string' || !Object.hasOwn(elementArrays, dtype))
    throw malformed(at, `a dtype among ${Object.keys(elementArrays).join(' ')}`, quoted(dtype))
  if (!Array.isArray(shape) || !shape.every(isSize))
    throw malformed(at, 'a shape of whole numbers', shape === undefined ? 'none' : quoted(shape))
  if (!Array.isArray(offsets) || offsets.length !== 2 || !offsets.every(isSize))
    throw malformed(
      at,
      'data_offsets of two whole numbers',
      offsets === undefined ? 'none' : quoted(offsets),
    )
  const [begin, end] = offsets as [number, number]
  const sizeBytes = elementsOf(shape) * elementArrays[dtype as SafetensorsDtype].BYTES_PER_ELEMENT
  if (end - begin !== sizeBytes)
    throw malformed(
      at,
      `${sizeBytes} bytes for ${dtype} [${clipped(shape.join(', '))}]`,
      `${end - begin}`,
    )
  return { name, dtype: dtype as SafetensorsDtype, shape, begin, end }
}

/** Where the tensors' bytes begin. `first`: the file's first bytes, as many as `foreignFile` reads; `expected` names its format. */
function dataBegin(
  first: Uint8Array,
  fileBytes: number,
  where: string,
  expected = 'a safetensors file',
): number {
  // A header's size can look like anything, but a header begins with `{`.
  const foreign = foreignFile(where, expected, first)
  if (foreign && first[lengthBytes] !== 0x7b) throw foreign
  if (fileBytes < lengthBytes)
    throw (
      foreign ??
      malformed(where, `${lengthBytes} bytes of header length`, `${fileBytes} (truncated)`)
    )
  const headerBytes = Number(new DataView(first.buffer, first.byteOffset).getBigUint64(0, true))
  if (headerBytes > maxHeaderBytes)
    throw (
      foreign ??
      malformed(
        where,
        expected,
        `other bytes (as safetensors: a header of more than ${maxHeaderBytes} bytes)`,
      )
    )
  const remainingBytes = fileBytes - lengthBytes
  if (headerBytes > remainingBytes)
    throw malformed(where, `${headerBytes} bytes of header`, `${remainingBytes} (truncated)`)
  return lengthBytes + headerBytes
}

/** What a header says of a file with `dataBytes` of tensors: they fill those bytes without hole or overlap, in this order. */
function parseHead(
  header: Uint8Array,
  dataBytes: number,
  where: string,
): { entries: HeaderEntry[]; metadata: Record<string, string> } {
  const { [metadataKey]: metadata = {}, ...named } = parseHeader(header, where)
  if (!isRecord(metadata) || !Object.values(metadata).every((value) => typeof value === 'string'))
    throw malformed(where, `${metadataKey} of text to text`, quoted(metadata))
  const entries = Object.entries(named)
    .map(([name, value]) => parseEntry(name, value, where))
    .sort((a, b) => a.begin - b.begin || a.end - b.end)
  let filled = 0
  for (const { name, begin, end } of entries) {
    const at = `${where}: "${clipped(name)}"`
    if (begin !== filled)
      throw malformed(at, `data from byte ${filled} on (no hole, no overlap)`, `byte ${begin}`)
    if (end > dataBytes)
      throw malformed(at, `data up to byte ${end}`, `${dataBytes} bytes (truncated)`)
    filled = end
  }
  if (dataBytes !== filled)
    throw malformed(where, `the file's end after ${filled} bytes of data`, `${dataBytes} bytes`)
  return { entries, metadata: { ...(metadata as Record<string, string>) } }
}

const tensorOf = ({ name, dtype, shape }: HeaderEntry, bytes: Uint8Array): [string, SafeTensor] => [
  name,
  { dtype, shape, data: new elementArrays[dtype](new Uint8Array(bytes).buffer) } as SafeTensor,
]

/**
 * Returns the tensors of a safetensors file; `name` is the file's name in errors.
 *
 * Data are copies, so the bytes of the file may be discarded or changed afterwards.
 * errors: `data.malformed` for a wrong or truncated header, an unknown dtype, offsets that do not fit the shape, gaps or overlaps between
 * tensors, and missing or surplus bytes at the end.
 */
export function readSafetensors(
  source: Uint8Array | ArrayBuffer,
  name = 'safetensors',
): SafetensorsFile {
  checkText('readSafetensors', 'name', name)
  const where = clippedName(name)
  const file = asBytes(source)
  const areBytes = isOf(file, Uint8Array) && !isDetached(file)
  checkArgument(where, 'source', file, areBytes, 'its bytes, a Uint8Array or an ArrayBuffer')
  const data = file.subarray(dataBegin(file, file.length, where))
  const header = file.subarray(lengthBytes, file.length - data.length)
  const { entries, metadata } = parseHead(header, data.length, where)
  const tensors = entries.map((entry) => tensorOf(entry, data.subarray(entry.begin, entry.end)))
  return { tensors: new Map(tensors), metadata }
}

/** The tensors that a file has, in their order in it, and where their bytes begin. `expected` names the formats that errors ask for. */
export async function openSafetensors(
  file: OpenFile,
  expected?: string,
): Promise<{ entries: HeaderEntry[]; metadata: Record<string, string>; dataAt: number }> {
  const where = clippedName(file.name)
  const dataAt = dataBegin(await file.read(0, foreignBytes), file.sizeBytes, where, expected)
  const header = await file.read(lengthBytes, dataAt)
  return { ...parseHead(header, file.sizeBytes - dataAt, where), dataAt }
}

/** As `readSafetensors`, tensor by tensor; `expected` names the formats that errors ask for. */
export async function readOpenSafetensors(
  file: OpenFile,
  expected: string,
): Promise<SafetensorsFile> {
  const { entries, metadata, dataAt } = await openSafetensors(file, expected)
  const tensors = new Map<string, SafeTensor>()
  for (const entry of entries) {
    const bytes = await file.read(dataAt + entry.begin, dataAt + entry.end)
    tensors.set(...tensorOf(entry, bytes))
  }
  return { tensors, metadata }
}
