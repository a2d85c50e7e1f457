import { PeerError } from '../../util/errors.ts'
import type { MadeTransport } from '../link/channel-transport.ts'
import type { LanedConnection, LanedConnectionOptions, LanedStats } from './laned-connection.ts'
import type { LateConnection } from './late-connection.ts'
import type { LocalPorts } from './local-ports.ts'

/** What is asked of a page for one link; `key` is the same on both sides, and no other link's. */
export interface PortRequest {
  /** Within the page, or to another tab of its browser. */
  readonly way: 'local' | 'port'
  readonly key: string
  readonly side: 0 | 1
  readonly peerName: string
}

export interface ConnectionRequest {
  readonly key: string
  readonly isInitiator: boolean
  readonly peerName: string
  readonly rtc: RTCConfiguration | undefined
}

/** Parts of links, of this page or of one that was lent. */
export interface LinkParts {
  /** A port to the other side. `onGone`: the other side has gone. errors: `peer.unreachable`. */
  openPort(request: PortRequest, onGone: () => void): Promise<MessagePort>
  /**
   * Resolves when the connection is up, and what `onTransport` returned has resolved. It is called in the task that made a channel: for lane 0
   * once for each attempt, of which the newest counts, then for the others. `onDown`: the connection was up, and has ended. errors:
   * `peer.unreachable`.
   */
  connect(
    request: ConnectionRequest,
    onTransport: (transport: MadeTransport, lane: number) => unknown,
    onSignal: (attempt: number, signals: unknown) => void,
    onDown: (error: PeerError) => void,
  ): Promise<void>
  /** Takes what the other side's `onSignal` gave. */
  signal(key: string, attempt: number, signals: unknown): void
  /** Ends one connection, or the making of it. */
  disconnect(key: string): void
  /** Ends all that was made here. */
  close(): void
}

export interface OwnPartsOptions {
  readonly ports: () => Promise<LocalPorts | null>
  readonly makeConnection: (options: LanedConnectionOptions) => LanedConnection | LateConnection
  /** The form in which a channel is given on. */
  readonly transportOf: (channel: RTCDataChannel) => MadeTransport
}

/** Parts of links to other pages, made on this page. */
export class OwnParts implements LinkParts {
  readonly #options: OwnPartsOptions
  readonly #connections = new Map<string, LanedConnection | LateConnection>()
  /** Released with these parts. */
  protected readonly pairs: { release(): void }[] = []
  #isClosed = false

  constructor(options: OwnPartsOptions) {
    this.#options = options
  }

  async openPort({ key, side, peerName }: PortRequest, onGone: () => void) {
    const ports = await this.#options.ports()
    if (!ports)
      throw new PeerError(
        'peer.unreachable',
        `link to ${peerName}: no ports here. Use transport "webrtc".`,
      )
    const pair = await ports.pair(key, side, peerName)
    if (this.#isClosed) {
      pair.release()
      pair.port.close()
    } else this.pairs.push(pair)
    void pair.gone.then(onGone)
    return pair.port
  }

  async connect(
    { key, isInitiator, peerName, rtc }: ConnectionRequest,
    onTransport: (transport: MadeTransport, lane: number) => unknown,
    onSignal: (attempt: number, signals: unknown) => void,
    onDown: (error: PeerError) => void,
  ): Promise<void> {
    const { makeConnection, transportOf } = this.#options
    const taken: unknown[] = []
    const connection = makeConnection({
      initiator: isInitiator,
      peerName,
      ...(rtc && { rtc }),
      onChannel: (channel, lane) => {
        const taking = onTransport(transportOf(channel), lane)
        taken.push(taking)
        // Awaited below; until then a failure must not count as unhandled.
        Promise.resolve(taking).catch(() => undefined)
      },
      onSignal,
      onDown,
    })
    this.#connections.set(key, connection)
    connection.start()
    await connection.connected
    await Promise.all(taken)
  }

  signal(key: string, attempt: number, signals: unknown): void {
    this.#connections.get(key)?.receive(attempt, signals)
  }

  /** Counts of a connection; null where there is none. */
  async stats(key: string): Promise<LanedStats | null> {
    return (await this.#connections.get(key)?.stats()) ?? null
  }

  disconnect(key: string): void {
    this.#connections.get(key)?.close()
    this.#connections.delete(key)
  }

  close(): void {
    if (this.#isClosed) return
    this.#isClosed = true
    for (const connection of this.#connections.values()) connection.close()
    for (const pair of this.pairs) pair.release()
  }
}
