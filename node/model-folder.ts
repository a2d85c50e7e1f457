import { open, readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import type { ModelFolder } from '../src/data/model-folder.ts'
import { DataError, messageOf } from '../src/util/errors.ts'

/** The folder `directory` of the disk. errors: `data.missing` for a file that cannot be read. */
export function diskModelFolder(directory: string): ModelFolder {
  const unreadable = (name: string, thrown: unknown) =>
    new DataError(
      'data.missing',
      `cannot read ${join(directory, name)}: ${messageOf(thrown)}. Check the file and its permissions.`,
      { cause: thrown },
    )
  return {
    async size(name) {
      const info = await stat(join(directory, name)).catch((thrown) => {
        if ((thrown as NodeJS.ErrnoException).code === 'ENOENT') return undefined
        throw unreadable(name, thrown)
      })
      return info?.isFile() ? info.size : undefined
    },
    async read(name, offset, length) {
      const file = await open(join(directory, name)).catch((thrown) => {
        throw unreadable(name, thrown)
      })
      try {
        const bytes = new Uint8Array(length)
        let filled = 0
        while (filled < length) {
          const { bytesRead } = await file.read(bytes, filled, length - filled, offset + filled)
          if (bytesRead === 0) break
          filled += bytesRead
        }
        return bytes.subarray(0, filled)
      } catch (thrown) {
        throw unreadable(name, thrown)
      } finally {
        await file.close()
      }
    },
    names: async () => (await readdir(directory)).sort(),
  }
}
