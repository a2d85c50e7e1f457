import type { FolderReader } from '../../src/data/dataset.ts'
import { DataError } from '../../src/util/errors.ts'

/** The four files of a data set in MNIST's layout, in the order in which they travel. */
export const idxNames = [
  'train-images-idx3-ubyte',
  'train-labels-idx1-ubyte',
  't10k-images-idx3-ubyte',
  't10k-labels-idx1-ubyte',
] as const
export type IdxName = (typeof idxNames)[number]

export type IdxFiles = Readonly<Record<IdxName, Uint8Array<ArrayBuffer>>>

/** What given files begin with. */
const mark = 'TIDX'
const headerBytes = mark.length + 4 * idxNames.length

/** Returns four files as a person gives them to a run: the letters TIDX, each file's length as uint32 (little endian), the files, plain or gzip. */
export function packIdx(files: IdxFiles): Uint8Array<ArrayBuffer> {
  const parts = idxNames.map((name) => files[name])
  const bytes = new Uint8Array(headerBytes + parts.reduce((sum, { length }) => sum + length, 0))
  bytes.set([...mark].map((letter) => letter.charCodeAt(0)))
  const header = new DataView(bytes.buffer)
  let at = headerBytes
  for (const [i, part] of parts.entries()) {
    header.setUint32(mark.length + 4 * i, part.length, true)
    bytes.set(part, at)
    at += part.length
  }
  return bytes
}

/** Returns a reader of the files that a person gave. errors: `data.malformed`. */
export function unpackIdx(bytes: Uint8Array<ArrayBuffer>): FolderReader {
  if (
    bytes.length < headerBytes ||
    String.fromCharCode(...bytes.subarray(0, mark.length)) !== mark
  ) {
    throw malformed(`its ${bytes.length} bytes do not begin with ${mark}`)
  }
  const header = new DataView(bytes.buffer, bytes.byteOffset)
  const files = new Map<string, Uint8Array<ArrayBuffer>>()
  let at = headerBytes
  for (const [i, name] of idxNames.entries()) {
    const length = header.getUint32(mark.length + 4 * i, true)
    files.set(name, bytes.subarray(at, at + length))
    at += length
  }
  if (at !== bytes.length)
    throw malformed(`expected ${at} bytes, as its header says, got ${bytes.length}`)
  return async (name) => files.get(name)
}

const malformed = (problem: string) =>
  new DataError('data.malformed', `IDX data: ${problem}. Add the four files again.`)
