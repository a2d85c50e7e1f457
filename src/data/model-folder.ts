import { clippedName } from '../util/clipped.ts'
import { DataError } from '../util/errors.ts'
import { isIterable, isOf, isRecord } from '../util/kind-of.ts'
import { checkList } from '../util/options.ts'
import { type OpenFile, openFile } from './byte-source.ts'
import type { FolderFile } from './folder.ts'
import { malformed } from './malformed.ts'

/** A folder of large files, of which parts are read: picked or dropped files, a server's folder, a folder of the disk, or your own. */
export interface ModelFolder {
  /** Returns a file's size, undefined where there is none of that name. units: bytes. */
  size(name: string): Promise<number | undefined>
  /** Returns `length` bytes of a file from `offset` on. Parts are read one after the other. */
  read(name: string, offset: number, length: number): Promise<Uint8Array<ArrayBuffer>>
  /** Returns the names of its files; absent where it cannot list them. */
  names?(): Promise<readonly string[]>
  /**
   * Fetches files that will be read whole and keeps them, where they are not yet. `onBytes` gets how many bytes of all of them are there.
   * Absent where there is nothing to fetch.
   */
  keep?(names: readonly string[], onBytes: (bytes: number) => void): Promise<void>
}

/** Returns whether it is a picked file, or one of a listing. */
export const isFolderFile = (file: unknown): file is File | FolderFile =>
  isOf(file, File) || (isRecord(file) && 'source' in file)

/**
 * Returns the folder of files that people picked or dropped, or of a listing (`listDropped`, `listDirectory`, `listServed`).
 *
 * If all lie in one folder, and config.json in no other, names are those below it.
 */
export function filesFolder(files: Iterable<File | FolderFile>): ModelFolder {
  const list = isIterable(files) ? [...files] : files
  checkList('filesFolder', 'files', list as (File | FolderFile)[], isFolderFile, 'files')
  const all = [...list].map((file) =>
    isOf(file, File)
      ? { path: file.webkitRelativePath || file.name, source: file }
      : (file as FolderFile),
  )
  const configs = all.filter(({ path }) => /(^|\/)config\.json$/.test(path))
  const root = configs.length === 1 ? configs[0].path.slice(0, -'config.json'.length) : ''
  const byName = new Map(
    all.flatMap((file) => {
      return file.path.startsWith(root) ? [[file.path.slice(root.length), file] as const] : []
    }),
  )
  const opened = new Map<string, Promise<OpenFile>>()
  const open = (name: string): Promise<OpenFile> | undefined => {
    const file = byName.get(name)
    if (file && !opened.has(name)) opened.set(name, openFile(file.source, file.path))
    return opened.get(name)
  }
  return {
    size: async (name) => (await open(name))?.sizeBytes,
    read: async (name, offset, length) => (await open(name)!).read(offset, offset + length),
    names: async () => [...byName.keys()],
  }
}

/** One file of a folder, undefined where there is none. errors: the folder's; its `read` refuses fewer bytes than there should be. */
export async function openIn(folder: ModelFolder, name: string): Promise<OpenFile | undefined> {
  const sizeBytes = await folder.size(name)
  if (sizeBytes === undefined) return undefined
  const read = async (begin: number, end: number) => {
    const length = Math.min(end, sizeBytes) - begin
    const bytes = length > 0 ? await folder.read(name, begin, length) : new Uint8Array()
    if (bytes.length === Math.max(0, length)) return bytes
    throw malformed(clippedName(name), `${length} bytes from ${begin} on`, `${bytes.length}`)
  }
  return { name, sizeBytes, read }
}

/** As `openIn`. errors: `data.missing`, with the names of the files that are there. */
export async function mustOpenIn(
  folder: ModelFolder,
  name: string,
  remedy: string,
): Promise<OpenFile> {
  return (await openIn(folder, name)) ?? missingIn(folder, name, remedy)
}

export async function missingIn(folder: ModelFolder, name: string, remedy: string): Promise<never> {
  const names = (await folder.names?.()) ?? []
  const others = names.length > 0 ? `, but ${clippedName(names.join(', '))}` : ''
  throw new DataError(
    'data.missing',
    `${clippedName(name)}: the folder has no such file${others}. ${remedy}`,
  )
}
