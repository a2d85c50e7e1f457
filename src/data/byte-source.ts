import { type FileSource, readFile } from './folder.ts'

/** A file: an address (URL or string), a picked, dropped or downloaded file, or its bytes. */
export type ByteSource = string | URL | FileSource | Uint8Array<ArrayBuffer>

/** Bytes with what to call them in errors. */
export interface NamedBytes {
  readonly name: string
  readonly bytes: Uint8Array<ArrayBuffer>
}

/** `name` is for sources that have none of their own. errors: `data.missing` when it cannot be read. */
export async function readBytes(source: ByteSource, name: string): Promise<NamedBytes> {
  if (source instanceof Uint8Array) return { name, bytes: source }
  const isAddress = typeof source === 'string' || source instanceof URL
  const file = isAddress ? { url: new URL(source, globalThis.location?.href).href } : source
  const path = 'url' in file ? file.url : 'name' in file ? String(file.name) : name
  const blob = await readFile({ path, source: file })
  return { name: path, bytes: new Uint8Array(await blob.arrayBuffer()) }
}
