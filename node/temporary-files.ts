import { randomBytes } from 'node:crypto'
import { lstat, readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'

/** Files that a launcher writes before it moves them into their place. Their names tell of which process they are, so that those of a killed one can be found. */

const ofLauncher = /\.(\d{1,10})-[0-9a-f]{8}\.tmp$/

/** A launcher gives up on a file after minutes (Node's server bears five for a request), so nobody moves one that has lain for so long. units: ms. */
const abandonedMs = 3_600_000

/** A new name beside `path`. */
export const temporaryPath = (path: string): string =>
  `${path}.${process.pid}-${randomBytes(4).toString('hex')}.tmp`

/** Whether a file's name is of those that `temporaryPath` gives. */
export const isTemporary = (name: string): boolean => ofLauncher.test(name)

/**
 * Removes temporary files from a folder, and returns their names: those that nobody has written to for an hour, and whose process does not
 * live on this machine.
 *
 * units: `nowMs` by the clock of the folder's disk, which may be another machine's.
 */
export async function sweepTemporary(folder: string, nowMs: number): Promise<string[]> {
  const swept: string[] = []
  for (const name of await readdir(folder)) {
    const pid = ofLauncher.exec(name)?.[1]
    if (pid === undefined || isAlive(Number(pid))) continue
    const path = join(folder, name)
    const found = await lstat(path).catch(() => undefined) // another launcher may sweep too
    if (!found?.isFile() || nowMs - found.mtimeMs < abandonedMs) continue
    await rm(path, { force: true })
    swept.push(name)
  }
  return swept
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (thrown) {
    return (thrown as NodeJS.ErrnoException).code === 'EPERM' // somebody else's
  }
}
