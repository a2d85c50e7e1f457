import { clipped, clippedName } from '../util/clipped.ts'
import { DataError, messageOf } from '../util/errors.ts'
import { type ByteSource, type OpenFile, openFile } from './byte-source.ts'
import { foreignBytes, foreignFile } from './foreign.ts'
import { malformed } from './malformed.ts'
import { joined, maxUnpacked, unpackedParts } from './unpack.ts'

/**
 * ZIP archives, as `.npz` and PyTorch's `.pt` files are: entries that are stored or deflated, also in the 64-bit form.
 *
 *     per entry   a local header, its name, extra fields, its data
 *     directory   per entry a header with its place, sizes, checksum and name
 *     end         the directory's place and size; before it the same in 64 bits where 32 are too few
 *
 * All numbers are little-endian.
 * source: PKWARE's APPNOTE.TXT, version 6.3.10.
 */

const signatures = {
  local: 0x04034b50,
  entry: 0x02014b50,
  end: 0x06054b50,
  end64: 0x06064b50,
  locator64: 0x07064b50,
}
/** Sizes of the headers without what varies. */
const bytesOf = { local: 30, entry: 46, end: 22, end64: 56, locator64: 20 }
const maxCommentBytes = 0xffff
/** In the place of a number that needs 64 bits. */
const isIn64 = 0xffffffff
const isIn64Short = 0xffff
const extra64 = 1
const [stored, deflated] = [0, 8]
const methodNames: Readonly<Record<number, string>> = {
  9: 'Deflate64',
  12: 'bzip2',
  14: 'LZMA',
  93: 'Zstandard',
  95: 'XZ',
  99: 'AES encryption',
}
const [encryptedFlag, utf8Flag] = [1, 1 << 11]

/** A file in an archive. */
export interface ZipEntry {
  readonly name: string
  /** Unpacked. */
  readonly sizeBytes: number
  readonly packedBytes: number
  readonly isDeflated: boolean
  readonly crc32: number
  /** Where its local header begins. */
  readonly at: number
}

const viewOf = (bytes: Uint8Array) => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)

/** A ZIP archive, of which entries are read one by one. */
export class ZipArchive {
  /** The file's name in errors. */
  readonly name: string
  /** Its files by name, in the order of its directory. */
  readonly entries: ReadonlyMap<string, ZipEntry>
  readonly #file: OpenFile

  private constructor(file: OpenFile, entries: ReadonlyMap<string, ZipEntry>) {
    this.name = file.name
    this.entries = entries
    this.#file = file
  }

  /**
   * Reads an archive's directory; `name` is for sources without a name.
   *
   * errors: `data.missing` when it cannot be read; `data.malformed` when it is no archive, is truncated or in several parts, has two
   * entries of one name, entries that overlap, are encrypted or packed in another way than deflate.
   */
  static async open(source: ByteSource | OpenFile, name = 'ZIP archive'): Promise<ZipArchive> {
    const opened = await openFile(source, name)
    const file = { ...opened, name: clippedName(opened.name) }
    return new ZipArchive(file, parseDirectory(await readDirectory(file), file))
  }

  /** Returns an entry's bytes, which may be a view of the source's. errors: `data.malformed` as `parts`. */
  async read(name: string): Promise<Uint8Array<ArrayBuffer>> {
    const all: Uint8Array<ArrayBuffer>[] = []
    for await (const part of this.parts(name)) all.push(part)
    return joined(all)
  }

  /**
   * Yields an entry's bytes, part by part: never more than its size says.
   *
   * errors: `data.malformed` for a name that the archive does not have, damaged data, another size or checksum than the directory's, and
   * for more than 1 GiB of deflated data.
   */
  async *parts(name: string): AsyncGenerator<Uint8Array<ArrayBuffer>, void> {
    const entry = this.entries.get(name)
    if (!entry)
      throw malformed(
        this.name,
        `an entry "${clipped(name)}"`,
        clipped([...this.entries.keys()].join(', ')) || 'none',
      )
    const where = `${this.name}, entry "${clipped(name)}"`
    const { sizeBytes, packedBytes } = entry
    if (entry.isDeflated && sizeBytes > maxUnpacked)
      throw malformed(where, `at most ${maxUnpacked} bytes of deflated data`, `${sizeBytes}`)
    const packed = await readPacked(this.#file, entry, where)
    const parts = entry.isDeflated
      ? unpackedParts([packed], 'deflate-raw', (thrown) =>
          malformed(
            where,
            'deflated data',
            `damaged ones in its ${packedBytes} bytes (${messageOf(thrown)})`,
          ),
        )
      : [packed]
    let length = 0
    let crc = 0
    for await (const part of parts) {
      length += part.length
      if (length > sizeBytes) throw malformed(where, `${sizeBytes} bytes`, 'more')
      crc = crc32(part, crc)
      yield part
    }
    if (length !== sizeBytes) throw malformed(where, `${sizeBytes} bytes`, `${length}`)
    if (crc !== entry.crc32) throw malformed(where, `the checksum ${entry.crc32}`, `${crc}`)
  }
}

/** The entry's data as they are in the file: its local header says where they begin. */
async function readPacked(
  file: OpenFile,
  { at, packedBytes, name }: ZipEntry,
  where: string,
): Promise<Uint8Array<ArrayBuffer>> {
  const header = await file.read(at, at + bytesOf.local)
  const view = viewOf(header)
  if (header.length < bytesOf.local || view.getUint32(0, true) !== signatures.local)
    throw malformed(where, `its local header at byte ${at}`, 'other bytes')
  const nameBytes = view.getUint16(26, true)
  const nameAt = at + bytesOf.local
  const localName = textOf(await file.read(nameAt, nameAt + nameBytes))
  if (localName !== name)
    throw malformed(where, 'the same name in its local header', `"${clipped(localName)}"`)
  const begin = nameAt + nameBytes + view.getUint16(28, true)
  const packed = await file.read(begin, begin + packedBytes)
  if (packed.length < packedBytes)
    throw malformed(where, `${packedBytes} bytes from byte ${begin}`, `${packed.length}`)
  return packed
}

const textOf = (bytes: Uint8Array) => new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes)

/** A directory's headers, and how many the archive's end says they are. */
interface Directory {
  readonly bytes: Uint8Array<ArrayBuffer>
  readonly count: number
}

async function readDirectory(file: OpenFile): Promise<Directory> {
  const tailAt = Math.max(0, file.sizeBytes - bytesOf.end - maxCommentBytes)
  const tail = await file.read(tailAt, file.sizeBytes)
  const view = viewOf(tail)
  let endAt = tail.length - bytesOf.end
  const isEnd = () =>
    view.getUint32(endAt, true) === signatures.end &&
    endAt + bytesOf.end + view.getUint16(endAt + 20, true) === tail.length
  while (endAt >= 0 && !isEnd()) endAt--
  if (endAt < 0) {
    const head = await file.read(0, foreignBytes)
    const isCut =
      viewOf(head).byteLength >= 4 && viewOf(head).getUint32(0, true) === signatures.local
    const foreign = isCut ? undefined : foreignFile(file.name, 'a ZIP archive', head)
    throw (
      foreign ??
      malformed(
        file.name,
        'the directory of a ZIP archive at its end',
        `none in ${file.sizeBytes} bytes (truncated, or no archive)`,
      )
    )
  }
  const locatorAt = endAt - bytesOf.locator64
  const isLong = locatorAt >= 0 && view.getUint32(locatorAt, true) === signatures.locator64
  const end = isLong
    ? await readEnd64(file, numberAt(view, locatorAt + 8))
    : {
        parts: view.getUint16(endAt + 4, true),
        count: view.getUint16(endAt + 10, true),
        sizeBytes: view.getUint32(endAt + 12, true),
        at: view.getUint32(endAt + 16, true),
      }
  if (end.parts !== 0) throw malformed(file.name, 'an archive in one file', 'one of several')
  if (end.at + end.sizeBytes > tailAt + endAt)
    throw malformed(
      file.name,
      `${end.sizeBytes} bytes of directory from byte ${end.at}`,
      `its end at byte ${tailAt + endAt}`,
    )
  return { bytes: await file.read(end.at, end.at + end.sizeBytes), count: end.count }
}

async function readEnd64(file: OpenFile, at: number) {
  const bytes = await file.read(at, at + bytesOf.end64)
  const view = viewOf(bytes)
  if (bytes.length < bytesOf.end64 || view.getUint32(0, true) !== signatures.end64)
    throw malformed(file.name, `the 64-bit end of a ZIP archive at byte ${at}`, 'other bytes')
  return {
    parts: view.getUint32(16, true),
    count: numberAt(view, 32),
    sizeBytes: numberAt(view, 40),
    at: numberAt(view, 48),
  }
}

/** Beyond 2^53 it is inexact, but then far from any file's size. */
const numberAt = (view: DataView, at: number) => Number(view.getBigUint64(at, true))

function parseDirectory({ bytes, count }: Directory, file: OpenFile): Map<string, ZipEntry> {
  const view = viewOf(bytes)
  const entries = new Map<string, ZipEntry>()
  let [at, seen, packedBytes] = [0, 0, 0]
  while (at < bytes.length) {
    const where = `${file.name}, entry ${seen} of the directory`
    if (at + bytesOf.entry > bytes.length || view.getUint32(at, true) !== signatures.entry)
      throw malformed(where, 'its header', 'other bytes')
    const [nameBytes, extraBytes, commentBytes] = [28, 30, 32].map((one) =>
      view.getUint16(at + one, true),
    )
    const end = at + bytesOf.entry + nameBytes + extraBytes
    if (end + commentBytes > bytes.length)
      throw malformed(where, 'a header within the directory', 'a longer one')
    const entry = parseEntry(bytes.subarray(at, end), nameBytes, file.name)
    if (entries.has(entry.name))
      throw malformed(file.name, 'one entry of each name', `two of "${clipped(entry.name)}"`)
    if (!entry.name.endsWith('/')) entries.set(entry.name, entry)
    packedBytes += entry.packedBytes
    at = end + commentBytes
    seen++
  }
  if (seen !== count) throw malformed(file.name, `${count} entries`, `${seen}`)
  // Thousands of entries can share the same data: a small file made to fill memory.
  if (packedBytes > file.sizeBytes)
    throw malformed(
      file.name,
      'entries that do not overlap',
      `${packedBytes} bytes of them in a file of ${file.sizeBytes}`,
    )
  return entries
}

function parseEntry(header: Uint8Array, nameBytes: number, file: string): ZipEntry {
  const view = viewOf(header)
  const nameEnd = bytesOf.entry + nameBytes
  const name = textOf(header.subarray(bytesOf.entry, nameEnd))
  const where = `${file}, entry "${clipped(name)}"`
  if (view.getUint16(8, true) & encryptedFlag)
    throw malformed(where, 'data that are not encrypted', 'encrypted ones')
  const method = view.getUint16(10, true)
  if (method !== stored && method !== deflated)
    throw malformed(
      where,
      'data that are stored or deflated',
      methodNames[method] ?? `method ${method}`,
    )
  const wide = wideNumbers(header.subarray(nameEnd))
  const sizeOf = (place: number) => {
    const value = view.getUint32(place, true)
    const size = value === isIn64 ? wide.shift() : value
    if (size === undefined) throw malformed(where, 'sizes in 64 bits', 'none')
    return size
  }
  const [sizeBytes, packedBytes, at] = [24, 20, 42].map(sizeOf)
  if (method === stored && sizeBytes !== packedBytes)
    throw malformed(where, 'stored data of one size', `${packedBytes} bytes for ${sizeBytes}`)
  return {
    name,
    sizeBytes,
    packedBytes,
    at,
    isDeflated: method === deflated,
    crc32: view.getUint32(16, true),
  }
}

/** The numbers of the extra field for 64 bits, in their order there. */
function wideNumbers(extra: Uint8Array): number[] {
  const view = viewOf(extra)
  for (let at = 0; at + 4 <= extra.length; ) {
    const end = at + 4 + view.getUint16(at + 2, true)
    if (view.getUint16(at, true) === extra64) {
      const numbers: number[] = []
      for (let one = at + 4; one + 8 <= Math.min(end, extra.length); one += 8)
        numbers.push(numberAt(view, one))
      return numbers
    }
    at = end
  }
  return []
}

const crcTable = Uint32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1
  return crc
})

/** Returns the CRC-32 of `bytes` after others whose CRC-32 was `before`. */
function crc32(bytes: Uint8Array, before = 0): number {
  let crc = ~before
  for (let i = 0; i < bytes.length; i++) crc = crcTable[(crc ^ bytes[i]) & 0xff] ^ (crc >>> 8)
  return ~crc >>> 0
}

/** 1 January 1980, the first one there is: equal input gives equal bytes. */
const noDate = (1 << 5) | 1
/** PyTorch pads to this with an extra field of this number, so that tensors can be mapped into memory. units: bytes. */
const alignment = 64
const paddingField = 0x4246

/**
 * Returns an archive of stored entries in their order; the data of each begin at a multiple of 64 bytes, as in PyTorch's files.
 *
 * errors: `config.invalid` for more than 65,534 entries or 4 GiB, which need the 64-bit form.
 */
export function writeZip(
  entries: Iterable<readonly [name: string, data: Uint8Array]>,
): Uint8Array<ArrayBuffer> {
  let at = 0
  const placed = [...new Map(entries)].map(([text, data]) => {
    const name = new TextEncoder().encode(text)
    const nameEnd = at + bytesOf.local + name.length
    // An extra field has 4 bytes before its contents.
    const begin = Math.ceil((nameEnd + 4) / alignment) * alignment
    const one = { name, data, at, begin, padding: begin - nameEnd, crc: crc32(data) }
    at = begin + data.length
    return one
  })
  const sizeBytes = placed.reduce((sum, { name }) => sum + bytesOf.entry + name.length, 0)
  const whole = at + sizeBytes + bytesOf.end
  if (placed.length >= isIn64Short || whole >= isIn64)
    throw new DataError(
      'config.invalid',
      `writeZip: expected at most 65534 entries and 4 GiB, got ${placed.length} of ${whole} bytes. Write several files.`,
    )
  const file = new Uint8Array(whole)
  const view = viewOf(file)
  const put16 = (place: number, ...values: number[]) =>
    values.forEach((value, i) => void view.setUint16(place + 2 * i, value, true))
  const put32 = (place: number, ...values: number[]) =>
    values.forEach((value, i) => void view.setUint32(place + 4 * i, value, true))
  /** What both headers of an entry have, from the version needed to the name's length. */
  const putCommon = (place: number, { name, data, crc }: (typeof placed)[number]) => {
    put16(place, 20, name.some((byte) => byte > 127) ? utf8Flag : 0, stored, 0, noDate)
    put32(place + 10, crc, data.length, data.length)
    put16(place + 22, name.length)
  }
  let entryAt = at
  for (const one of placed) {
    put32(one.at, signatures.local)
    putCommon(one.at + 4, one)
    put16(one.at + 28, one.padding)
    file.set(one.name, one.at + bytesOf.local)
    put16(one.begin - one.padding, paddingField, one.padding - 4)
    file.set(one.data, one.begin)
    put32(entryAt, signatures.entry)
    put16(entryAt + 4, 20)
    putCommon(entryAt + 6, one)
    put32(entryAt + 42, one.at)
    file.set(one.name, entryAt + bytesOf.entry)
    entryAt += bytesOf.entry + one.name.length
  }
  put32(entryAt, signatures.end)
  put16(entryAt + 8, placed.length, placed.length)
  put32(entryAt + 12, sizeBytes, at)
  return file
}
