import type { FileFolder } from '../../data/file-store.ts'
import { httpFolder } from '../../data/http-folder.ts'
import { env } from '../../distributed/rendezvous/env.ts'
import type { Variables } from '../../distributed/rendezvous/slurm.ts'
import { DataError, TabringError } from '../../util/errors.ts'

/**
 * Returns the folder that `tabring run --checkpoint-dir` names, on machine 0. `saveCheckpoint` and `loadCheckpoint` use it automatically if there
 * is one.
 *
 * Only the ranks of machine 0 can use it; on other machines its functions reject, but saving or loading on all ranks does not call them
 * there. In a worker, pass the environment that its page has posted: `launcherFolder(environment)`.
 * errors: `config.invalid` on use, if there is no such folder; those of `httpFolder`.
 */
export function launcherFolder(environment: Variables = env): FileFolder {
  const folder = async () => {
    const found = offeredFolder(environment)
    if (found) return found
    throw new TabringError(
      'config.invalid',
      'launcherFolder: the launcher provides no folder. Start with tabring run --checkpoint-dir FOLDER, and use it on machine 0.',
    )
  }
  return behind(folder)
}

/** That folder; on other machines than its own one whose functions reject; undefined where the launcher has none. */
export function offeredFolder(environment: Variables = env): FileFolder | undefined {
  const address = 'CHECKPOINT_URL' in environment ? environment.CHECKPOINT_URL : undefined
  if (address === undefined) return undefined
  // Rather than into this tab's own files, which end with the tab.
  return address === '' ? behind(refuse) : httpFolder(address)
}

async function refuse(): Promise<FileFolder> {
  throw new DataError(
    'file.unwritable',
    'checkpoint: rank 0 of the group is not on machine 0, where --checkpoint-dir is. Create a group whose first rank is there, or pass { folder }.',
  )
}

const behind = (folder: () => Promise<FileFolder>): FileFolder => ({
  read: async (name) => (await folder()).read(name),
  write: async (name, contents) => (await folder()).write(name, contents),
  remove: async (name) => (await folder()).remove(name),
})
