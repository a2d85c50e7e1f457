import type { JsonValue, MemberInfo, ToNext } from '../../peer/room/messages.ts'
import { linkKind } from '../../peer/room/topology.ts'
import { LobbyLinks, type LobbyWay, type WayOptions } from '../../peer/tab/lobby-links.ts'
import type { LocalPair, LocalPorts } from '../../peer/tab/local-ports.ts'
import type { SignalClient } from '../../peer/tab/signal.ts'
import type { WebRtcConnection } from '../../peer/tab/webrtc.ts'
import { systemEnv } from '../../util/env.ts'
import { PeerError } from '../../util/errors.ts'
import { loadPart } from '../../util/load-part.ts'

export interface LinkLobbyOptions {
  readonly client: SignalClient
  readonly own: MemberInfo
  readonly ports: LocalPorts | null
  readonly tell: (toNext: ToNext | undefined) => void
}

/** Returns a tab's links to its neighbours between runs. They go the way that a link in a run would; none goes through the server. */
export function linkLobby({ client, own, ports, tell }: LinkLobbyOptions): LobbyLinks {
  return new LobbyLinks({
    env: systemEnv,
    ownId: client.id,
    makeWay(peer, options): LobbyWay | null {
      const kind = linkKind(own, peer)
      if (kind === 'port') return ports && new PortWay(ports, peer.name, options)
      return kind === 'webrtc' ? new WebRtcWay(client, peer.name, options) : null
    },
    send: (to, data) => client.reach(to, data),
    tell,
  })
}

/** Over a MessagePort, to another tab of this browser. */
class PortWay implements LobbyWay {
  readonly connected: Promise<void>
  #pair: LocalPair | undefined
  #isClosed = false
  #answered: () => void = () => undefined
  #ended: (error: PeerError) => void = () => undefined
  readonly #peerName: string

  constructor(ports: LocalPorts, peerName: string, { isCalling, key, say }: WayOptions) {
    this.#peerName = peerName
    this.connected = this.#connect(ports, key, isCalling)
    this.connected.catch(() => undefined)
    // The other side has to ask for a port too.
    if (isCalling) say('port')
  }

  async #connect(ports: LocalPorts, key: string, isCalling: boolean): Promise<void> {
    const pair = await ports.pair(key, isCalling ? 0 : 1, this.#peerName)
    this.#pair = pair
    if (this.#isClosed) this.#release()
    const { port } = pair
    port.onmessage = () => (isCalling ? this.#answered() : port.postMessage(0))
    void pair.gone.then(() => this.#ended(this.#error('the other tab closed')))
  }

  async roundTrips(count: number): Promise<number[]> {
    const tripsMs: number[] = []
    for (let i = 0; i < count; i++) {
      const startMs = performance.now()
      await new Promise<void>((resolve, reject) => {
        this.#answered = resolve
        this.#ended = reject
        if (this.#isClosed) reject(this.#error('closed on this side'))
        this.#pair!.port.postMessage(0)
      })
      tripsMs.push(performance.now() - startMs)
    }
    return tripsMs
  }

  receive(): void {
    // The call itself, which made this side: nothing else is said.
  }

  close(): void {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#ended(this.#error('closed on this side'))
    this.#release()
  }

  #release(): void {
    this.#pair?.release()
    this.#pair?.port.close()
  }

  #error(why: string): PeerError {
    return new PeerError('peer.lost', `link to ${this.#peerName}: ended: ${why}.`)
  }
}

/** Over WebRTC, whose code comes with the first. */
class WebRtcWay implements LobbyWay {
  readonly connected: Promise<void>
  #connection: WebRtcConnection | undefined
  #early: Said[] = []
  #isClosed = false

  constructor(client: SignalClient, peerName: string, options: WayOptions) {
    this.connected = this.#connect(client, peerName, options)
    this.connected.catch(() => undefined)
  }

  async #connect(
    client: SignalClient,
    peerName: string,
    { isCalling, say }: WayOptions,
  ): Promise<void> {
    const [{ WebRtcConnection }, iceServers] = await Promise.all([
      loadPart('WebRTC', () => import('../../peer/tab/webrtc.ts')),
      client.askIceServers(),
    ])
    if (this.#isClosed)
      throw new PeerError('peer.lost', `link to ${peerName}: closed on this side. Connect again.`)
    const connection = new WebRtcConnection({
      initiator: isCalling,
      peerName,
      rtc: { iceServers: [...iceServers] },
      onChannel: () => undefined, // no gradients
      onSignal: (attempt, signals) => say({ attempt, signals }),
      onDown: () => undefined, // the next question shows it
    })
    this.#connection = connection
    connection.start()
    for (const said of this.#early.splice(0)) this.receive(said)
    await connection.connected
  }

  roundTrips(count: number): Promise<number[]> {
    return this.#connection!.roundTrips(count)
  }

  receive(said: unknown): void {
    const { attempt, signals } = said as Said
    if (this.#connection) this.#connection.receive(Number(attempt), signals)
    else this.#early.push({ attempt, signals })
  }

  close(): void {
    this.#isClosed = true
    this.#connection?.close()
  }
}

interface Said {
  readonly attempt: number
  readonly signals: JsonValue
}
