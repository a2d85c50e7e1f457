import type { Link } from '../../peer/link/link.ts'
import { LanedConnection } from '../../peer/tab/laned-connection.ts'
import { type LocalPorts, openLocalPorts } from '../../peer/tab/local-ports.ts'
import { systemEnv } from '../../util/env.ts'
import { PeerError } from '../../util/errors.ts'
import { env } from '../rendezvous/env.ts'
import type { Place } from '../rendezvous/plan-links.ts'
import { pagePair, pageTag } from './page-pairs.ts'

/** What is asked of a page for one link; `key` is the same on both sides, and no other link's. */
export interface PortRequest {
  way: 'local' | 'port'
  key: string
  side: 0 | 1
  peerName: string
}

export interface ConnectionRequest {
  key: string
  isInitiator: boolean
  peerName: string
  rtc: RTCConfiguration | undefined
}

/** How links are made here: on this page, or by the page that was lent. */
export interface LinkMaker {
  /** Where this is. The caller, which knows the rendezvous, adds `hasRelay`. */
  place(asksBrowser: boolean): Promise<Omit<Place, 'hasRelay'>>
  openPort(request: PortRequest, ongone: () => void): Promise<MessagePort>
  /** The link, when it is up. */
  connect(
    request: ConnectionRequest,
    onSignal: (attempt: number, signals: unknown) => void,
  ): Promise<Link>
  signal(key: string, attempt: number, signals: unknown): void
  /** Ends one connection, or the making of it. */
  disconnect(key: string): void
  openStore(room: string): Promise<MessagePort | null>
  close(): void
}

/** What links are made of, for one group: on this page, also for the worker to which it was lent. In a worker itself, message channels alone. */
export class OwnPage {
  private ports: Promise<LocalPorts | null> | undefined
  private readonly connections = new Map<string, LanedConnection>()
  private readonly pairs: { release(): void }[] = []
  private isClosed = false
  private unloaded: string | undefined

  /** `asksBrowser`: whether to look for what joins the browser's tabs. */
  async place(asksBrowser: boolean): Promise<Omit<Place, 'hasRelay'>> {
    const ports = asksBrowser ? await this.localPorts() : null
    return {
      pageTag,
      hostTag: ports?.hostTag ?? '',
      nodeTag: 'GROUP_RANK' in env ? env.GROUP_RANK : '',
      hasWebRtc: 'RTCPeerConnection' in globalThis,
      name: nameOfPlace(),
    }
  }

  /** A port to the other side. `ongone`: the other side has gone. errors: `peer.unreachable`. */
  async openPort({ way, key, side, peerName }: PortRequest, ongone: () => void) {
    if (way === 'local') {
      const pair = pagePair(key, ongone)
      this.pairs.push(pair)
      return pair.port
    }
    const ports = await this.localPorts()
    const pair = await ports!.pair(key, side, peerName)
    if (this.isClosed) pair.release()
    else this.pairs.push(pair)
    void pair.gone.then(ongone)
    return pair.port
  }

  /**
   * Resolves when the connection is up. `onChannel` is called in the task that made the channel: for lane 0 once for each attempt, of which
   * the newest counts, then for the others. errors: `peer.unreachable`.
   */
  async connect(
    { key, isInitiator, peerName, rtc }: ConnectionRequest,
    onChannel: (channel: RTCDataChannel, lane: number) => void,
    onSignal: (attempt: number, signals: unknown) => void,
  ): Promise<void> {
    const connection = new LanedConnection({
      initiator: isInitiator,
      peerName,
      ...(rtc && { rtc }),
      onChannel,
      onSignal,
      // Its channel ends too, and the link reports that.
      onDown: () => undefined,
    })
    this.connections.set(key, connection)
    connection.start()
    await connection.connected
  }

  /** What the other side's `onSignal` gave. */
  signal(key: string, attempt: number, signals: unknown): void {
    this.connections.get(key)?.receive(attempt, signals)
  }

  /** Ends one connection, or the making of it. */
  disconnect(key: string): void {
    this.connections.get(key)?.close()
    this.connections.delete(key)
  }

  /** A port to a store that the browser's tabs share; null where they share none. errors: `config.invalid` for a script that is missing. */
  async openStore(room: string): Promise<MessagePort | null> {
    const ports = await this.localPorts()
    if (!ports && this.unloaded)
      throw new PeerError(
        'config.invalid',
        `initProcessGroup: the SharedWorker failed: ${this.unloaded}. Copy the library's folder dist-lib/assets beside the bundle, which esbuild does not, or use wss:// or opfs:.`,
      )
    return ports?.openStore(room) ?? null
  }

  /** Ends all that was made here. */
  close(): void {
    if (this.isClosed) return
    this.isClosed = true
    for (const connection of this.connections.values()) connection.close()
    for (const pair of this.pairs) pair.release()
    void this.ports?.then((ports) => ports?.close())
  }

  private localPorts(): Promise<LocalPorts | null> {
    this.ports ??= openLocalPorts(systemEnv, (why) => {
      this.unloaded = why
    })
    return this.ports
  }
}

/** Where this runs, for error texts: without what stands behind the #, which may be a secret. */
function nameOfPlace(): string {
  const { location } = globalThis as { location?: { href: string } }
  return location ? location.href.replace(/#.*/, '').slice(0, 120) : 'a process'
}
