import type { FileFolder } from '../../src/data/file-store.ts'

/** A folder in memory that can be looked into. */
export interface SeenFolder extends FileFolder {
  readonly files: Map<string, Blob>
  /** Names that were written, in order. */
  readonly written: string[]
}

/** `before` is asked before each write and removal; what it throws ends that one, and the file stays as it was. */
export function seenFolder(before: (what: string) => unknown = () => undefined): SeenFolder {
  const files = new Map<string, Blob>()
  const written: string[] = []
  return {
    files,
    written,
    read: async (name) => files.get(name),
    write: async (name, contents) => {
      await before(`write ${name}`)
      written.push(name)
      files.set(name, contents)
    },
    remove: async (name) => {
      await before(`remove ${name}`)
      files.delete(name)
    },
  }
}
