import { open, rm } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { messageOf, TabringError } from '../src/util/errors.ts'
import { makeFolder } from './make-folder.ts'
import { sweepTemporary, temporaryPath } from './temporary-files.ts'
import { secretPrefix, type WritableFolders } from './writable-folders.ts'

/** The folder of `--checkpoint-dir`, as a launcher offers it to rank 0's tab. */
export class CheckpointFolder {
  /** For the server: empty before `offer`. */
  readonly writable: WritableFolders = {}
  /** Of the disk. */
  readonly path: string

  /** `given`: as it was typed. */
  constructor(private readonly given: string) {
    this.path = resolve(given)
  }

  /**
   * Makes the folder if there is none, sees whether it can be written, and removes what launchers that were killed left half written.
   *
   * errors: `file.unwritable`.
   */
  async prove(): Promise<void> {
    const probe = temporaryPath(join(this.path, 'probe'))
    try {
      await makeFolder(this.path)
      const handle = await open(probe, 'wx')
      const { mtimeMs } = await handle.stat()
      await handle.close()
      await rm(probe)
      await sweepTemporary(this.path, mtimeMs)
    } catch (thrown) {
      throw new TabringError(
        'file.unwritable',
        `--checkpoint-dir: cannot write to ${this.given}: ${(thrown as NodeJS.ErrnoException).code ?? messageOf(thrown)}. Choose another folder.`,
        { cause: thrown },
      )
    }
  }

  /**
   * Returns the path under which the server has the folder from now on, another for each start: what a tab of an earlier start still sends
   * does not come to lie among the files of this one.
   */
  offer(): string {
    for (const prefix of Object.keys(this.writable)) delete this.writable[prefix]
    const prefix = secretPrefix('checkpoints')
    this.writable[prefix] = this.path
    return prefix
  }
}
