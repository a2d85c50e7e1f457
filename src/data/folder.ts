import { clipped, clippedName } from '../util/clipped.ts'
import { DataError, messageOf } from '../util/errors.ts'
import { isIterable, isOf, isRecord, quoted } from '../util/kind-of.ts'
import { checkArgument, checkList } from '../util/options.ts'

/**
 * A file of a folder that was picked by the user, dropped onto the page, or listed by a server.
 *
 * A file's `source` can be posted to a worker, which reads it there.
 */
export type FileSource = Blob | FileSystemFileHandle | { readonly url: string }

export interface FolderFile {
  /** Path within the folder, joined by `/`. */
  readonly path: string
  readonly source: FileSource
}

/** Files in order of their paths, and the paths of folders in which there is no file. */
export type FolderListing = FolderFile[] & { readonly emptyFolders?: readonly string[] }

const listingOf = (files: FolderFile[], emptyFolders: readonly string[]): FolderListing =>
  Object.assign(files.sort(byPath), emptyFolders.length > 0 && { emptyFolders })

/** The same order everywhere: by UTF-16 code units, which no language setting changes. */
const byPath = (a: FolderFile, b: FolderFile) => (a.path < b.path ? -1 : a.path > b.path ? 1 : 0)

/** The file's bytes. errors: `data.missing` when it cannot be read, naming its path. */
export async function readFile({ path, source }: FolderFile): Promise<Blob> {
  try {
    if (isOf(source, Blob, File)) return source
    if ('getFile' in source) return await source.getFile()
    const response = await fetch(source.url)
    if (response.ok) return await response.blob()
    throw new Error(`status ${response.status} from ${source.url}`)
  } catch (thrown) {
    throw unreadable(path, thrown)
  }
}

/** The error for a file of which `thrown` is why it cannot be read. */
export const unreadable = (path: string, thrown: unknown) =>
  new DataError(
    'data.missing',
    `${clippedName(path)}: cannot read the file (${clippedName(messageOf(thrown))}). Choose the folder again, or check the address.`,
    { cause: thrown },
  )

/**
 * An address, which may be relative to the page's. `otherwise`: what else may be passed. errors: `config.invalid` for an invalid one, and
 * for that of a local file, which `fetch` does not read.
 */
export function addressOf(where: string, name: string, address: string | URL, otherwise = ''): URL {
  const isText = typeof address === 'string' || isOf(address, URL)
  const base = globalThis.location?.href
  const url = isText && URL.canParse(address, base) ? new URL(address, base) : undefined
  if (url && url.protocol !== 'file:') return url
  throw new DataError(
    'config.invalid',
    `${where}: ${name} must be an address that can be fetched, got ${quoted(address)}. Pass a URL such as https://host/file${base || url ? '' : '; without a page it must be a whole one'}${otherwise}.`,
  )
}

/** Returns all files below a folder that the user picked (`showDirectoryPicker`) or that is in the origin private file system. */
export async function listDirectory(directory: FileSystemDirectoryHandle): Promise<FolderListing> {
  const files: FolderFile[] = []
  const empty: string[] = []
  const walk = async (folder: FileSystemDirectoryHandle, path: string): Promise<void> => {
    let isEmpty = true
    for await (const [name, handle] of folder.entries()) {
      isEmpty = false
      const own = joinedPath(path, name)
      if (handle.kind === 'directory') await walk(handle as FileSystemDirectoryHandle, own)
      else files.push({ path: own, source: handle as FileSystemFileHandle })
    }
    if (isEmpty && path !== '') empty.push(path)
  }
  const isFolder = typeof directory?.entries === 'function' && !ArrayBuffer.isView(directory)
  checkArgument(
    'listDirectory',
    'directory',
    directory,
    isFolder,
    'what showDirectoryPicker() gives',
  )
  await walk(directory, '')
  return listingOf(files, empty)
}

const joinedPath = (folder: string, name: string) => (folder === '' ? name : `${folder}/${name}`)

/**
 * Returns all dropped files, including those inside folders. Call it synchronously in the drop event: later the items are gone.
 *
 * A single dropped folder is the root: its name is not part of the paths.
 */
export function listDropped(items: DataTransferItemList): Promise<FolderListing> {
  const isList = isIterable(items) && [...items].every((item) => isRecord(item) && 'kind' in item)
  checkArgument('listDropped', 'items', items, isList, 'event.dataTransfer.items')
  const entries = [...items]
    .filter(({ kind }) => kind === 'file')
    .map((item) => item.webkitGetAsEntry())
    .filter((entry) => entry !== null)
  return listEntries(entries)
}

/** Returns all files of file system entries, like `listDropped`. */
export async function listEntries(entries: readonly FileSystemEntry[]): Promise<FolderListing> {
  const files: FolderFile[] = []
  const empty: string[] = []
  const walk = async (entry: FileSystemEntry, path: string): Promise<void> => {
    if (entry.isFile) {
      const source = await new Promise<File>((resolve, reject) => {
        ;(entry as FileSystemFileEntry).file(resolve, reject)
      })
      files.push({ path, source })
      return
    }
    const children = await childrenOf(entry as FileSystemDirectoryEntry)
    if (children.length === 0 && path !== '') empty.push(path)
    for (const child of children) await walk(child, joinedPath(path, child.name))
  }
  const isEntry = (entry: unknown) =>
    isRecord(entry) && ('isFile' in entry || 'isDirectory' in entry)
  checkList('listEntries', 'entries', entries, isEntry, 'file system entries')
  const [only] = entries
  if (entries.length === 1 && only.isDirectory) await walk(only, '')
  else for (const entry of entries) await walk(entry, entry.name)
  return listingOf(files, empty)
}

/** Browsers give a folder's entries in portions (of 100 in Chromium); an empty one is the end. */
async function childrenOf(directory: FileSystemDirectoryEntry): Promise<FileSystemEntry[]> {
  const reader = directory.createReader()
  const all: FileSystemEntry[] = []
  for (;;) {
    const some = await new Promise<FileSystemEntry[]>((resolve, reject) => {
      reader.readEntries(resolve, reject)
    })
    if (some.length === 0) return all
    all.push(...some)
  }
}

/**
 * Returns the files of a served folder from its listing: a JSON array of paths relative to the listing's own address. A folder
 * without files is a path that ends in `/`.
 *
 * `npm start` answers a data folder's address (ending in `/`) with its listing; any other server can store one as a file.
 * errors: `data.missing` if it does not exist; `data.malformed` if it is not an array of relative paths.
 */
export async function listServed(listingUrl: string | URL): Promise<FolderListing> {
  const base = addressOf('listServed', 'listingUrl', listingUrl)
  const file = clippedName(base.href)
  const response = await fetch(base)
  if (!response.ok)
    throw new DataError(
      'data.missing',
      `${file}: the server answered ${response.status}. Check the data folder's address.`,
    )
  const text = await response.text()
  let paths: unknown
  try {
    paths = JSON.parse(text)
  } catch {
    paths = undefined
  }
  if (!Array.isArray(paths) || !paths.every((path) => typeof path === 'string' && isInside(path)))
    throw new DataError(
      'data.malformed',
      `${file}: expected a JSON array of relative paths, got ${clipped(text)}. Write the listing again.`,
    )
  const isFolder = (path: string) => path.endsWith('/')
  const files = (paths as string[])
    .filter((path) => !isFolder(path))
    .map((path) => ({
      path,
      source: { url: new URL(path.split('/').map(encodeURIComponent).join('/'), base).href },
    }))
  const empty = (paths as string[]).filter(isFolder).map((path) => path.slice(0, -1))
  return listingOf(files, empty)
}

/** No address can be made of half a character. */
const isInside = (path: string): boolean =>
  path !== '' &&
  !/\p{Cs}/u.test(path) &&
  !path
    .replace(/\/$/, '')
    .split('/')
    .some((part) => part === '' || part === '.' || part === '..')
