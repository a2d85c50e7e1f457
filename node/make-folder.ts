import { mkdir, stat } from 'node:fs/promises'
import { dirname } from 'node:path'

/**
 * Makes a folder, and those above it, unless they are there. Node's own recursive `mkdir` never returns where a folder refuses others in it
 * as /proc does.
 *
 * errors: as from the file system.
 */
export async function makeFolder(path: string, mode = 0o777): Promise<void> {
  const make = () =>
    mkdir(path, { mode }).catch(async (thrown) => {
      const found = await stat(path).catch(() => null)
      if (!found?.isDirectory()) throw thrown
    })
  try {
    await make()
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code !== 'ENOENT' || dirname(path) === path) throw thrown
    await makeFolder(dirname(path), mode)
    await make()
  }
}
