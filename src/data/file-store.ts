import { clipped } from '../util/clipped.ts'
import { DataError } from '../util/errors.ts'

/** A store for files in parts, kept between visits if the browser supports it. */
export interface FileStore {
  folder(name: string): Promise<PartFolder>
}

/** Files by name. `write` is atomic: a file is complete or absent, and its previous contents stay until then. */
export interface FileFolder {
  /** Returns the file; undefined if it does not exist. */
  read(name: string): Promise<Blob | undefined>
  write(name: string, contents: Blob): Promise<void>
  /** Removes the file; does nothing if it does not exist. */
  remove(name: string): Promise<void>
  /**
   * Runs `work` exclusively: no other context that shares the folder runs such a call at the same time. Absent if the folder is not shared.
   */
  withLock?<T>(work: () => Promise<T>): Promise<T>
}

/** The parts of one file, by name. */
export interface PartFolder extends FileFolder {
  clear(): Promise<void>
}

/** Returns a store in this page's memory: gone with the page. */
export function memoryFileStore(): FileStore {
  const folders = new Map<string, Map<string, Blob>>()
  return {
    async folder(name) {
      const parts = folders.get(name) ?? new Map<string, Blob>()
      folders.set(name, parts)
      return {
        read: async (part) => parts.get(part),
        write: async (part, contents) => {
          parts.set(part, contents)
        },
        remove: async (part) => {
          parts.delete(part)
        },
        clear: async () => parts.clear(),
      }
    },
  }
}

/** A tab that stopped while it had a folder must not stop the others. */
const lockWaitMs = 10_000

/**
 * Returns a store in the origin private file system, below the folder `root`.
 *
 * Its blobs are views of files: reading a part uses no memory until its bytes are used.
 */
export function opfsFileStore(root = 'tabring-files'): FileStore {
  const open = async (name: string) => {
    const top = await navigator.storage.getDirectory()
    const all = await top.getDirectoryHandle(root, { create: true })
    return all.getDirectoryHandle(name, { create: true })
  }
  return {
    async folder(name) {
      let directory = await open(name)
      return {
        async read(part) {
          const handle = await directory.getFileHandle(part).catch(unlessMissing)
          return handle?.getFile()
        },
        async write(part, contents) {
          const handle = await directory.getFileHandle(part, { create: true })
          // The new contents take the old ones' place when the stream is closed, not before.
          const stream = await handle.createWritable()
          await stream.write(contents)
          await stream.close()
        },
        async remove(part) {
          await directory.removeEntry(part).catch(unlessMissing)
        },
        withLock: async (work) => {
          if (!navigator.locks) return work()
          const signal = AbortSignal.timeout(lockWaitMs)
          const request = navigator.locks.request(`tabring files ${root}/${name}`, { signal }, work)
          return request.catch((thrown) => {
            if (thrown !== signal.reason) throw thrown
            throw new DataError(
              'file.unwritable',
              `files: another tab has held the folder "${clipped(name)}" for ${lockWaitMs / 1000} s. Close tabs that do not answer.`,
            )
          })
        },
        async clear() {
          const top = await navigator.storage.getDirectory()
          const all = await top.getDirectoryHandle(root, { create: true })
          await all.removeEntry(name, { recursive: true })
          directory = await open(name)
        },
      }
    },
  }
}

/** The names of the folders below `root` in the origin private file system. */
export async function listFolders(root: string): Promise<string[]> {
  const top = await navigator.storage.getDirectory()
  const all = await top.getDirectoryHandle(root).catch(unlessMissing)
  const names: string[] = []
  if (all)
    for await (const [name, handle] of all.entries())
      if (handle.kind === 'directory') names.push(name)
  return names
}

/** Returns undefined for a missing file. Any other error is thrown: it may pass, and the file may still be there. */
function unlessMissing(thrown: unknown): undefined {
  if (!(thrown instanceof DOMException && thrown.name === 'NotFoundError')) throw thrown
}

/** Returns whether this page or worker may write to an origin private file system. */
export const hasPrivateFiles = (): boolean =>
  globalThis.navigator?.storage?.getDirectory !== undefined &&
  typeof FileSystemFileHandle !== 'undefined' &&
  'createWritable' in FileSystemFileHandle.prototype

let inMemory: FileStore | undefined

/** The origin private file system where this context may write to it, else memory. */
export function defaultFileStore(): FileStore {
  if (hasPrivateFiles()) return opfsFileStore()
  inMemory ??= memoryFileStore()
  return inMemory
}
