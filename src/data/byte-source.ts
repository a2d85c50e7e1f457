import { ArgumentTypeError } from '../util/errors.ts'
import { isDetached, isOf, isRecord } from '../util/kind-of.ts'
import { checkArgument, checkText } from '../util/options.ts'
import { addressOf, type FileSource, readFile, unreadable } from './folder.ts'

/** A file: an address (URL or string), a picked, dropped or downloaded file, or its bytes. */
export type ByteSource = string | URL | FileSource | Uint8Array<ArrayBuffer> | ArrayBuffer

/** Bytes with what to call them in errors. */
export interface NamedBytes {
  readonly name: string
  readonly bytes: Uint8Array<ArrayBuffer>
}

/** A file of which parts are read: what is not read of a picked file never takes memory. */
export interface OpenFile {
  /** What to call it in errors. */
  readonly name: string
  readonly sizeBytes: number
  /** Returns the bytes from `begin` to before `end`, fewer at the file's end. They may be a view of the source's. */
  read(begin: number, end: number): Promise<Uint8Array<ArrayBuffer>>
}

const isSource = (source: unknown): boolean =>
  isRecord(source) && (isOf(source, Blob, File) || 'getFile' in source || 'url' in source)

const isOpen = (source: ByteSource | OpenFile): source is OpenFile =>
  isRecord(source) && 'sizeBytes' in source && 'read' in source

/** An ArrayBuffer as an array of its bytes; anything else, and one that was transferred away, as it is. errors: a TypeError for a Response. */
export function asBytes<T>(source: T | ArrayBuffer): T | Uint8Array<ArrayBuffer> {
  if (isOf(source, Response))
    throw new ArgumentTypeError(
      'source: expected an address, a file or its bytes, got a Response: await its arrayBuffer().',
    )
  return isOf(source, ArrayBuffer) && !isDetached(source) ? new Uint8Array(source) : (source as T)
}

/** `name` is for sources without a name. errors: `data.missing` when it cannot be read. */
export async function openFile(source: ByteSource | OpenFile, name: string): Promise<OpenFile> {
  if (isOpen(source)) return source
  const bytes = asBytes(source)
  if (isOf(bytes, Uint8Array) && !isDetached(bytes))
    return {
      name,
      sizeBytes: bytes.length,
      read: async (begin, end) => bytes.subarray(begin, end),
    }
  checkText('readBytes', 'name', name)
  const isAddress = typeof bytes === 'string' || isOf(bytes, URL)
  const local = ', or the bytes of a local file: await readFile(path) of node:fs/promises'
  const file = isAddress
    ? { url: addressOf(name, 'source', bytes, local).href }
    : (bytes as FileSource)
  checkArgument(
    name,
    'source',
    file,
    isSource(file),
    'an address, a file or its bytes (a Uint8Array or an ArrayBuffer)',
  )
  const path = 'url' in file ? file.url : 'name' in file ? String(file.name) : name
  const blob = await readFile({ path, source: file })
  const read = async (begin: number, end: number) => {
    try {
      return new Uint8Array(await blob.slice(begin, end).arrayBuffer())
    } catch (thrown) {
      throw unreadable(path, thrown)
    }
  }
  return { name: path, sizeBytes: blob.size, read }
}

/** As `openFile`, all of its bytes. */
export async function readBytes(source: ByteSource, name: string): Promise<NamedBytes> {
  const file = await openFile(source, name)
  return { name: file.name, bytes: await file.read(0, file.sizeBytes) }
}
