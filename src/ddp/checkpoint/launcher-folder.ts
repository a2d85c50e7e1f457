import type { FileFolder } from '../../data/file-store.ts'
import { httpFolder } from '../../data/http-folder.ts'
import { env } from '../../distributed/rendezvous/env.ts'
import type { Variables } from '../../distributed/rendezvous/slurm.ts'
import { DataError, TabringError } from '../../util/errors.ts'

/**
 * The folder that `tabring run --checkpoint-dir` names, on machine 0: for `saveCheckpoint` and `loadCheckpoint`, which take it by
 * themselves where there is one. Given by hand, it is an error where there is none.
 *
 * The ranks of that machine have it; on others its functions, which checkpoints of all ranks do not call there, reject. In a worker give it the environment that its
 * page has posted: `launcherFolder(environment)`.
 * errors: `config.invalid` on use; those of `httpFolder`.
 */
export function launcherFolder(environment: Variables = env): FileFolder {
  const folder = async () => {
    const found = offeredFolder(environment)
    if (found) return found
    throw new TabringError(
      'config.invalid',
      'launcherFolder: expected a folder from the launcher, got none. Start by tabring run --checkpoint-dir FOLDER, and use it on machine 0.',
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
    'checkpoint: expected rank 0 of the group to be on machine 0, where --checkpoint-dir is, got one on another machine. Make a group whose first rank is there, or give { folder }.',
  )
}

const behind = (folder: () => Promise<FileFolder>): FileFolder => ({
  read: async (name) => (await folder()).read(name),
  write: async (name, contents) => (await folder()).write(name, contents),
  remove: async (name) => (await folder()).remove(name),
})
