import { closeSync, openSync, writeSync } from 'node:fs'
import type { RoomEvent } from '../src/peer/server/rendezvous.ts'
import { messageOf, TabringError } from '../src/util/errors.ts'

/** What happens in a server's rooms, as JSON lines at the end of a file. */
export class EventLog {
  #isBroken = false

  private constructor(
    private readonly fd: number,
    private readonly path: string,
    private readonly report: (line: string) => void,
  ) {}

  /**
   * `report`: called once when the file can no longer be written, as on a full disk; the server continues.
   *
   * errors: `file.unwritable`.
   */
  static open(path: string, report: (line: string) => void): EventLog {
    try {
      // Addresses of people are for the server's owner alone.
      return new EventLog(openSync(path, 'a', 0o600), path, report)
    } catch (thrown) {
      throw new TabringError(
        'file.unwritable',
        `--log: cannot write ${path}: ${messageOf(thrown)}. Name another file.`,
      )
    }
  }

  /** At once: a queue in memory would grow with those who flood the server. */
  write(event: RoomEvent): void {
    if (this.#isBroken) return
    try {
      writeSync(this.fd, `${JSON.stringify({ time: new Date().toISOString(), ...event })}\n`)
    } catch (thrown) {
      this.#isBroken = true
      this.report(`--log: cannot write ${this.path} any more: ${messageOf(thrown)}.`)
    }
  }

  close(): void {
    this.#isBroken = true
    closeSync(this.fd)
  }
}
