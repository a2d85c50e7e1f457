import { nextTask } from '../../util/next-task.ts'

/** Work that a queue does in parts of about a millisecond. */
export interface Command {
  /** Does the next part; returns whether it was the last. */
  run(): boolean
}

/** After so long other tasks get their turn: a message of another rank must not wait for a whole step. units: ms. */
const sliceMs = 4

/** Does what it is given one after the other, in slices, and never within the call that gives it. */
export class WorkQueue {
  readonly #onError: (error: unknown, command: Command) => void
  #commands: Command[] = []
  #isWorking = false
  #isClosed = false
  /** When other tasks had their last turn. */
  #turnMs = 0

  /** `onError`: for what a command throws, which is then left; the others go on. */
  constructor(onError: (error: unknown, command: Command) => void) {
    this.#onError = onError
  }

  push(commands: readonly Command[]): void {
    for (const command of commands) {
      if (!this.#isClosed || command instanceof Act) this.#commands.push(command)
    }
    if (this.#isWorking || this.#commands.length === 0) return
    this.#isWorking = true
    queueMicrotask(() => this.#work())
  }

  /** Returns whether all is done. */
  get isIdle(): boolean {
    return !this.#isWorking
  }

  /** Calls `act` once all that was given before is done: now, where there is nothing. */
  after(act: () => void): void {
    if (this.isIdle) act()
    else this.push([new Act(act)])
  }

  /** Resolves once all that was given before is done. */
  done(): Promise<void> {
    return new Promise((resolve) => {
      if (this.isIdle) resolve()
      else this.push([new Act(resolve, true)])
    })
  }

  /** Drops all work, now and from now on. Who waits for it waits no longer. */
  close(): void {
    this.#isClosed = true
    this.#commands = this.#commands.filter((command) => command instanceof Act)
  }

  get isClosed(): boolean {
    return this.#isClosed
  }

  async #work(): Promise<void> {
    for (;;) {
      const [command] = this.#commands
      if (!command) break
      const isDone = this.#part(command)
      if (isDone && this.#commands[0] === command) this.#commands.shift()
      // Who has waited continues now, and sends what it got while the rest is computed.
      const isAwaited = command instanceof Act && command.isAwaited && this.#commands.length > 0
      if (isAwaited || performance.now() - this.#turnMs > sliceMs) {
        await nextTask()
        this.#turnMs = performance.now()
      }
    }
    this.#isWorking = false
  }

  #part(command: Command): boolean {
    try {
      return command.run()
    } catch (error) {
      this.#onError(error, command)
      return true
    }
  }
}

class Act implements Command {
  readonly #act: () => void
  /** True if tasks wait for it. */
  readonly isAwaited: boolean

  constructor(act: () => void, isAwaited = false) {
    this.#act = act
    this.isAwaited = isAwaited
  }

  run(): boolean {
    this.#act()
    return true
  }
}
