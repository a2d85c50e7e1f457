import { isRecord } from '../util/kind-of.ts'
import { checkArgument, checkText } from '../util/options.ts'
import { addressOf, type FileSource, readFile } from './folder.ts'

/** A file: an address (URL or string), a picked, dropped or downloaded file, or its bytes. */
export type ByteSource = string | URL | FileSource | Uint8Array<ArrayBuffer>

/** Bytes with what to call them in errors. */
export interface NamedBytes {
  readonly name: string
  readonly bytes: Uint8Array<ArrayBuffer>
}

const isSource = (source: unknown): boolean =>
  isRecord(source) && (source instanceof Blob || 'getFile' in source || 'url' in source)

/** `name` is for sources that have none of their own. errors: `data.missing` when it cannot be read. */
export async function readBytes(source: ByteSource, name: string): Promise<NamedBytes> {
  if (source instanceof Uint8Array) return { name, bytes: source }
  checkText('readBytes', 'name', name)
  const isAddress = typeof source === 'string' || source instanceof URL
  const file = isAddress ? { url: addressOf(name, source).href } : source
  checkArgument(name, 'the file', file, isSource(file), 'an address, a file or its bytes')
  const path = 'url' in file ? file.url : 'name' in file ? String(file.name) : name
  const blob = await readFile({ path, source: file })
  return { name: path, bytes: new Uint8Array(await blob.arrayBuffer()) }
}
