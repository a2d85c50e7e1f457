import { resolve } from 'node:path'
import { proveWritable } from '../train/checkpoint-dir.ts'
import { secretPrefix, type WritableFolders } from '../writable-folders.ts'

/** The folder of `--checkpoint-dir`, as the launcher of rank 0 offers it to that rank's tab. */
export class CheckpointFolder {
  /** For the server: empty before `offer`. */
  readonly writable: WritableFolders = {}
  readonly #path: string

  constructor(private readonly given: string) {
    this.#path = resolve(given)
  }

  /** Makes the folder if there is none. errors: `file.unwritable`. */
  prove(): Promise<void> {
    return proveWritable(this.#path, this.given)
  }

  /**
   * Returns the path under which the server has the folder from now on, another for each start: what a tab of an earlier start still sends
   * does not come to lie among the files of this one.
   */
  offer(): string {
    for (const prefix of Object.keys(this.writable)) delete this.writable[prefix]
    const prefix = secretPrefix('checkpoints')
    this.writable[prefix] = this.#path
    return prefix
  }
}
