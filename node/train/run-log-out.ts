import { writeFile } from 'node:fs/promises'
import { isLogged, RunLog, type RunLogFile } from '../../src/trainer/watch/run-log.ts'
import { OutFile } from './out-file.ts'
import type { TabEvent } from './tab-group.ts'

/** The file of `--run-log`: the log of a run with exact as far as it came, also where it failed or was stopped. */
export class RunLogOut {
  readonly #log = new RunLog()
  #isWritten = false

  private constructor(
    private readonly file: OutFile,
    private readonly config: object,
  ) {}

  /** errors: `file.unwritable`. */
  static async open(path: string, config: object): Promise<RunLogOut> {
    return new RunLogOut(await OutFile.open(path, '--run-log'), config)
  }

  /** Takes what rank 0 tells, and what any rank has found. */
  add(event: TabEvent): void {
    if (event.rank !== 0 && event.event !== 'unlike') return
    if (isLogged(event)) this.#log.add(event)
  }

  /** Puts the file in place. `end`: null where the run did not reach its end. errors: `file.unwritable`. */
  async write(end: RunLogFile['end']): Promise<void> {
    this.#isWritten = true
    await writeFile(this.file.temporaryPath, this.#log.text(this.config, end))
    await this.file.commit((bytes) => JSON.parse(String(bytes)))
  }

  /**
   * Puts the log of a run that did not reach its end in place, and `note` takes a line about it. Of a run without a whole step it leaves nothing,
   * and an existing file as it is. Does nothing after `write`. errors: `file.unwritable`.
   */
  async close(note: (line: string) => void): Promise<void> {
    const { step } = this.#log
    try {
      if (this.#isWritten || step === 0) return
      await this.write(null)
      note(`the log of the run up to step ${step} is in ${this.file.path}`)
    } finally {
      await this.file.discard()
    }
  }
}
