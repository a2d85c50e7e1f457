import { createReadStream } from 'node:fs'
import { readFile, stat } from 'node:fs/promises'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { join, resolve } from 'node:path'
import { pipeline } from 'node:stream'
import { entryOf, readManifest } from '../../src/data/checkpoint-folder.ts'
import type { FileFolder } from '../../src/data/file-store.ts'
import { load } from '../../src/data/saved-tree.ts'
import { DataError, TabringError } from '../../src/util/errors.ts'
import type { CheckpointAddress } from '../../src/worker/api.ts'
import { CheckpointFolder } from '../checkpoint-folder.ts'
import { secretPrefix, type WritableFolders } from '../writable-folders.ts'
import type { CheckpointOptions } from './options.ts'

/** The server's folder for checkpoints, and what the tabs get of it. */
export interface OpenedCheckpoints {
  readonly writable: WritableFolders
  readonly routes: Record<string, (request: IncomingMessage, response: ServerResponse) => void>
  readonly address: CheckpointAddress
  /** The address for another start of the run, from the folder's latest if the run has saved there; the one before is good no more. */
  again(hasSaved: boolean): CheckpointAddress
}

/**
 * Makes the folder if there is none, and sees to it that what is to be resumed is there, before anything is started.
 *
 * errors: `file.unwritable` for the folder; `config.invalid` for one with checkpoints that nobody resumes; `data.*` for what is not there or
 * no checkpoint.
 */
export async function openCheckpoints(options: CheckpointOptions): Promise<OpenedCheckpoints> {
  const { folder, keepLast, resume } = options
  const routes: OpenedCheckpoints['routes'] = {}
  const offered = folder === undefined ? undefined : new CheckpointFolder(folder)
  const address: CheckpointAddress = { keepLast }
  if (offered) {
    await offered.prove()
    const manifest = await readManifest(diskFolder(offered.path))
    const which = resume && 'which' in resume ? resume.which : undefined
    if (!resume && manifest) {
      throw new TabringError(
        'config.invalid',
        `--checkpoint-dir: ${folder} already has checkpoints (${manifest.files.at(-1)?.name ?? 'some'}). Pass --resume latest, or name another folder.`,
      )
    }
    if (which && !(manifest && entryOf(manifest, which))) {
      throw new DataError(
        'data.missing',
        `--resume: ${folder} has no ${manifest ? `${which} checkpoint` : 'checkpoints'}. Omit --resume, or name another folder.`,
      )
    }
    address.folder = offered.offer()
  }
  if (resume && 'file' in resume) {
    const path = resolve(resume.file)
    await proveCheckpoint(path, resume.file)
    address.file = secretPrefix('resume')
    routes[address.file] = (_, response) => {
      response.writeHead(200, { 'Content-Type': 'application/octet-stream' })
      // A read error ends the response short, which the tab reports as a file that is not whole.
      pipeline(createReadStream(path), response, () => undefined)
    }
  }
  return {
    writable: offered?.writable ?? {},
    routes,
    address,
    again: (hasSaved) => ({
      ...(hasSaved ? { keepLast } : address),
      folder: offered?.offer(),
    }),
  }
}

async function proveCheckpoint(path: string, given: string): Promise<void> {
  const found = await stat(path).catch(() => undefined)
  if (!found?.isFile()) {
    throw new DataError(
      'data.missing',
      `--resume: expected latest, best or a file, got ${given}, which ${found ? 'is not a file' : 'does not exist'}. Name a checkpoint.`,
    )
  }
  load(new Uint8Array(await readFile(path)), given)
}

/** A folder of the disk as checkpoints are read from it. */
const diskFolder = (path: string): Pick<FileFolder, 'read'> => ({
  read: async (name) => {
    const bytes = await readFile(join(path, name)).catch((thrown: NodeJS.ErrnoException) => {
      if (thrown.code === 'ENOENT') return undefined
      throw thrown
    })
    return bytes && new Blob([bytes])
  },
})
