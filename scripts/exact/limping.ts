import type { Browser } from 'playwright'

const periodMs = 100
const stoppedMs = 90

/** A browser whose processes, that of the GPU included, run for a tenth of the time: a device ten times slower. Needs signals, so no Windows. */
export class Limping {
  readonly #browser: Browser
  #ids: readonly number[] = []
  #timers: NodeJS.Timeout[] = []

  constructor(browser: Browser) {
    this.#browser = browser
  }

  /** Begins with the processes that it has now. */
  async begin(): Promise<void> {
    const session = await this.#browser.newBrowserCDPSession()
    const { processInfo } = await session.send('SystemInfo.getProcessInfo')
    await session.detach()
    this.#ids = processInfo.flatMap(({ type, id }) =>
      type === 'renderer' || type === 'GPU' ? [id] : [],
    )
    this.#timers.push(
      setInterval(() => {
        this.#send('SIGSTOP')
        this.#timers[1] = setTimeout(() => this.#send('SIGCONT'), stoppedMs)
      }, periodMs),
    )
  }

  /** Ends the browser. */
  async close(): Promise<void> {
    for (const timer of this.#timers) clearTimeout(timer)
    this.#send('SIGCONT')
    await this.#browser.close()
  }

  #send(name: NodeJS.Signals): void {
    for (const id of this.#ids) {
      try {
        process.kill(id, name)
      } catch {
        // A process that the browser had in reserve is gone.
      }
    }
  }
}
