import { loadPart } from '../../util/load-part.ts'
import type { LanedConnection, LanedConnectionOptions, LanedStats } from './laned-connection.ts'

/** Begins to load what WebRTC needs, for who sees that it will be wanted. */
export const loadWebRtc = () => loadPart('WebRTC', () => import('./laned-connection.ts'))

export interface LateConnectionOptions extends LanedConnectionOptions {
  /** Asked for when the connection begins. Default: those of `rtc`. */
  readonly iceServers?: () => Promise<readonly RTCIceServer[]>
}

/**
 * A `LanedConnection` whose code comes when the first one is started: a page alone does without it. Signals that come meanwhile are kept.
 */
export class LateConnection {
  /** As LanedConnection's. errors: `part.missing` besides. */
  readonly connected: Promise<void>
  readonly #options: LateConnectionOptions
  #connection: LanedConnection | undefined
  #early: { readonly attempt: number; readonly signals: unknown }[] = []
  #isClosed = false
  #begin!: (connecting: Promise<void>) => void

  constructor(options: LateConnectionOptions) {
    this.#options = options
    this.connected = new Promise((resolve) => {
      this.#begin = resolve
    })
    this.connected.catch(() => undefined)
  }

  start(): void {
    this.#begin(this.#start())
  }

  async #start(): Promise<void> {
    const [{ LanedConnection }, iceServers] = await Promise.all([
      loadWebRtc(),
      this.#options.iceServers?.(),
    ])
    const rtc = { ...this.#options.rtc, ...(iceServers && { iceServers: [...iceServers] }) }
    const connection = new LanedConnection({ ...this.#options, rtc })
    this.#connection = connection
    // It says itself that it was closed.
    if (this.#isClosed) connection.close()
    else connection.start()
    for (const { attempt, signals } of this.#early.splice(0)) connection.receive(attempt, signals)
    return connection.connected
  }

  /** Takes what the other side's `onSignal` gave. */
  receive(attempt: number, signals: unknown): void {
    if (this.#connection) this.#connection.receive(attempt, signals)
    else this.#early.push({ attempt, signals })
  }

  /** As LanedConnection's; null before there is one. */
  async stats(): Promise<LanedStats | null> {
    return this.#connection?.stats() ?? null
  }

  /** As WebRtcConnection's, once connected. */
  roundTrips(count: number): Promise<readonly number[]> {
    return this.#connection!.roundTrips(count)
  }

  /** Ends all lanes; idempotent. */
  close(): void {
    this.#isClosed = true
    this.#connection?.close()
  }
}
