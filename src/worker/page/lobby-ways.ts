import type { Transport } from '../../peer/link/channel-transport.ts'
import type { MemberInfo, ToNext } from '../../peer/room/messages.ts'
import { linkKind } from '../../peer/room/topology.ts'
import { FormingLink } from '../../peer/tab/forming-link.ts'
import { LateConnection } from '../../peer/tab/late-connection.ts'
import { OwnParts } from '../../peer/tab/link-parts.ts'
import { LobbyLinks, type LobbyWay, type WayOptions } from '../../peer/tab/lobby-links.ts'
import type { LocalPorts } from '../../peer/tab/local-ports.ts'
import type { SignalClient } from '../../peer/tab/signal.ts'
import { systemEnv } from '../../util/env.ts'
import { PeerError } from '../../util/errors.ts'

export interface LinkLobbyOptions {
  readonly client: SignalClient
  readonly own: MemberInfo
  readonly ports: LocalPorts | null
  readonly report: (toNext: ToNext | undefined) => void
}

/** Returns a tab's links to its neighbours between runs. They go the way that a link in a run would; none goes through the server. */
export function linkLobby({ client, own, ports, report }: LinkLobbyOptions): LobbyLinks {
  return new LobbyLinks({
    env: systemEnv,
    ownId: client.id,
    makeWay(peer, options): LobbyWay | null {
      const kind = linkKind(own, peer)
      if (kind === 'port') return ports && new Way(kind, client, ports, peer.name, options)
      return kind === 'webrtc' ? new Way(kind, client, ports, peer.name, options) : null
    },
    send: (to, data) => client.reach(to, data),
    report,
  })
}

/** A link on which questions and answers go, and no gradients. */
class Way implements LobbyWay {
  readonly connected: Promise<void>
  readonly #link: FormingLink
  #connection: LateConnection | undefined
  readonly #parts: OwnParts
  readonly #isCalling: boolean
  readonly #peerName: string
  #port: MessagePort | undefined
  #answered: () => void = () => undefined
  #ended: (error: PeerError) => void = () => undefined
  #isClosed = false

  constructor(
    kind: 'port' | 'webrtc',
    client: SignalClient,
    ports: LocalPorts | null,
    peerName: string,
    { isCalling, key, say }: WayOptions,
  ) {
    this.#isCalling = isCalling
    this.#peerName = peerName
    this.#parts = new OwnParts({
      ports: async () => ports,
      makeConnection: (options) => {
        const iceServers = () => client.askIceServers()
        this.#connection = new LateConnection({ ...options, lanes: 1, iceServers })
        return this.#connection
      },
      // The channel carries nothing.
      transportOf: (channel) => ({ kind: 'channel', channel }),
    })
    this.#link = new FormingLink({
      plan: { way: kind, isInitiator: isCalling },
      key,
      peerName,
      parts: this.#parts,
      env: systemEnv,
      send: (attempt, data) => say({ attempt, data }),
      onTransport: (transport) => this.#take(transport),
      onDown: (error) => this.#ended(error),
    })
    this.connected = this.#link.formed.then(() => undefined)
    this.connected.catch(() => undefined)
    // The other side has to ask for a port too.
    if (isCalling && kind === 'port') say('port')
  }

  #take(transport: Transport): void {
    if (transport.kind !== 'port') return
    const { port } = transport
    this.#port = port
    port.onmessage = () => (this.#isCalling ? this.#answered() : port.postMessage(0))
  }

  async roundTrips(count: number): Promise<readonly number[]> {
    if (this.#connection) return this.#connection.roundTrips(count)
    const tripsMs: number[] = []
    for (let i = 0; i < count; i++) {
      const startMs = performance.now()
      await new Promise<void>((resolve, reject) => {
        this.#answered = resolve
        this.#ended = reject
        if (this.#isClosed) reject(this.#closed())
        this.#port!.postMessage(0)
      })
      tripsMs.push(performance.now() - startMs)
    }
    return tripsMs
  }

  receive(said: unknown): void {
    // A call for a port has made this side: nothing else is said.
    if (said === 'port') return
    const { attempt, data } = Object(said)
    this.#link.receive(Number(attempt), data)
  }

  close(): void {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#ended(this.#closed())
    this.#link.close()
    this.#parts.close()
    this.#port?.close()
  }

  #closed(): PeerError {
    return new PeerError('peer.lost', `link to ${this.#peerName}: ended here.`)
  }
}
