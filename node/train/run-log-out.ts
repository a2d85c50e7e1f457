import { writeFile } from 'node:fs/promises'
import { RunLog, type RunLogFile } from '../../src/trainer/watch/run-log.ts'
import { OutFile } from './out-file.ts'
import type { TabEvent } from './tab-group.ts'

/** The file of `--run-log`: the log of a run with exact as far as it came, also where it failed or was stopped. */
export class RunLogOut {
  readonly #log = new RunLog()
  /** Of the attempt under way: by step, the hash that the first rank reported. */
  readonly #hashes = new Map<number, string>()
  #isWritten = false

  private constructor(
    private readonly file: OutFile,
    private readonly config: object,
  ) {}

  /** errors: `file.unwritable`. */
  static async open(path: string, config: object): Promise<RunLogOut> {
    return new RunLogOut(await OutFile.open(path, '--run-log'), config)
  }

  /** Takes the events of rank 0, what any rank has found, and the steps of all: a lost rank 0 may not have reported its last ones. */
  add(event: TabEvent): void {
    if (event.event === 'step') this.#addStep(event)
    else if (event.rank === 0 || event.event === 'unlike') this.#log.add(event)
  }

  #addStep({ step, stateHash, rank }: Extract<TabEvent, { event: 'step' }>): void {
    if (stateHash === undefined) return
    const first = this.#hashes.get(step)
    if (first === undefined) this.#hashes.set(step, stateHash)
    else if (first !== stateHash) {
      const text = `rank ${rank} told the hash ${stateHash} of the state after step ${step - 1}, and another rank ${first} before it`
      this.#log.add({ event: 'unlike', step: step - 1, text, isLasting: false })
    }
  }

  /** The run has ended, or begins again in other tabs: steps that they tell again follow those before. */
  endAttempt(): void {
    // Tabs are heard at different times: a step may have come after a later one.
    const steps = [...this.#hashes].sort(([one], [other]) => one - other)
    for (const [step, stateHash] of steps) this.#log.add({ event: 'step', step, stateHash })
    this.#hashes.clear()
  }

  /** Puts the file in place. `end`: null where the run did not reach its end. errors: `file.unwritable`. */
  async write(end: RunLogFile['end']): Promise<void> {
    this.#isWritten = true
    this.endAttempt()
    await writeFile(this.file.temporaryPath, this.#log.text(this.config, end))
    await this.file.commit((bytes) => JSON.parse(String(bytes)))
  }

  /**
   * Puts the log of a run that did not reach its end in place, and `note` takes a line about it. Of a run without a whole step it leaves nothing,
   * and an existing file as it is. Does nothing after `write`. errors: `file.unwritable`.
   */
  async close(note: (line: string) => void): Promise<void> {
    this.endAttempt()
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
