import type { FileFolder } from '../data/file-store.ts'
import { httpFolder } from '../data/http-folder.ts'
import { env } from '../distributed/env.ts'
import type { Variables } from '../distributed/slurm.ts'
import { TabringError } from '../util/errors.ts'

/**
 * The folder that `tabring run --checkpoint-dir` names, on the machine of rank 0: for `saveCheckpoint` and `loadCheckpoint`, which take it
 * by themselves where there is one. Given by hand, it is an error where there is none.
 *
 * Rank 0 alone has it; on the others its functions, which checkpoints do not call there, reject. In a worker give it the environment that its
 * page has posted: `launcherFolder(environment)`.
 * errors: `config.invalid` on use; those of `httpFolder`.
 */
export function launcherFolder(environment: Variables = env): FileFolder {
  const folder = async () => {
    const found = offeredFolder(environment)
    if (found) return found
    throw new TabringError(
      'config.invalid',
      'launcherFolder: expected a folder from the launcher, got none. Start by tabring run --checkpoint-dir FOLDER, and use it on rank 0.',
    )
  }
  return {
    read: async (name) => (await folder()).read(name),
    write: async (name, contents) => (await folder()).write(name, contents),
    remove: async (name) => (await folder()).remove(name),
  }
}

/** That folder on rank 0; undefined elsewhere, and where the launcher has none. */
export function offeredFolder(environment: Variables = env): FileFolder | undefined {
  const address = 'CHECKPOINT_URL' in environment ? environment.CHECKPOINT_URL : undefined
  return address === undefined ? undefined : httpFolder(address)
}
