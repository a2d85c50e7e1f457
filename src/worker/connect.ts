import { channelTransport, type Transport } from '../peer/channel-transport.ts'
import { LanedConnection, type LanedStats } from '../peer/laned-connection.ts'
import type { LinkStats } from '../peer/link.ts'
import type { LocalPair, LocalPorts } from '../peer/local-ports.ts'
import type { AssignedLink, Assignment } from '../peer/messages.ts'
import type { SignalClient } from '../peer/signal.ts'
import type { Env } from '../util/env.ts'
import { messageOf, PeerError } from '../util/errors.ts'

export interface FormLinksOptions {
  client: SignalClient
  assignment: Assignment
  /** This tab's ports; needed where the assignment says `port`. */
  ports: LocalPorts | null
  /**
   * Takes a transport in the task that made it: transfer it to the worker before returning. What it returns is awaited before
   * this rank is ready. Lane 0 comes again when a connection takes a second attempt: the newest counts. The others join it.
   */
  addLink: (epoch: number, peerRank: number, transport: Transport, lane: number) => unknown
  /** ICE servers and policy; by default the servers that the signaling server told of. */
  rtc?: RTCConfiguration
  /** A link that was up is down. The server has been told, and answers with `abort`. */
  onDown?: (peerRank: number, error: PeerError) => void
  env?: Env
}

/** One formed link, as the page can count it. */
export interface FormedLink {
  peerRank: number
  kind: AssignedLink['kind']
  /** Null for ports, which only the worker can count (`Link.stats`). */
  stats: LanedStats | null
}

export interface RingStats {
  /** Sum over the WebRTC links, as the browser's data channels count. */
  total: LinkStats
  links: FormedLink[]
}

export interface RingLinks {
  /**
   * Resolves when all links are up and the server has been told `ready`.
   * errors: PeerError `peer.unreachable` with the reason (the server has been told); `peer.aborted` when the epoch ended first.
   */
  readonly connected: Promise<void>
  /** Read before `close`: a closed connection keeps its last counts only. */
  stats(): Promise<RingStats>
  /** Ends all connections; idempotent. Wait for `finished` or `abort` first: an open neighbour counts a close as a loss. */
  close(): void
}

/**
 * Forms the links that an assignment asks of this rank: to both ring neighbours, to one with 2 ranks, to none alone.
 *
 * The server chose the kind of each link and who offers, the same for both sides. Closes by itself when the epoch is aborted.
 */
export function formLinks(options: FormLinksOptions): RingLinks {
  const { client, assignment, ports, addLink } = options
  const { epoch, rank } = assignment
  const connections = new Map<number, LanedConnection>()
  const pairs: LocalPair[] = []
  const unsubscribe: (() => void)[] = []
  let isClosed = false
  let isFinished = false
  let interrupt!: (error: unknown) => void
  const interrupted = new Promise<never>((_, reject) => {
    interrupt = reject
  })
  interrupted.catch(() => undefined)

  const close = () => {
    if (isClosed) return
    isClosed = true
    for (const off of unsubscribe) off()
    for (const connection of connections.values()) connection.close()
    for (const pair of pairs) pair.release()
    interrupt(new PeerError('peer.aborted', `epoch ${epoch}: its links were closed on this side.`))
  }
  unsubscribe.push(
    client.on('signal', ({ epoch: of, from, attempt, data }) => {
      if (of === epoch) connections.get(from)?.receive(attempt, data)
    }),
    client.on('finished', ({ epoch: of }) => {
      if (of !== epoch) return
      isFinished = true // from now on neighbours close as they like
      for (const off of unsubscribe.splice(0)) off()
    }),
    client.on('abort', ({ epoch: of, text }) => {
      if (of !== epoch) return
      interrupt(new PeerError('peer.aborted', text))
      close()
    }),
  )

  const nameOf = (peer: number) => `rank ${peer} (${assignment.members[peer].name})`

  const down = (peerRank: number, error: PeerError) => {
    if (isClosed || isFinished) return
    client.linkDown(epoch, peerRank, error.message)
    options.onDown?.(peerRank, error)
  }

  const overWebRtc = async ({ peerRank, initiator }: AssignedLink) => {
    const taken: unknown[] = []
    const connection = new LanedConnection({
      initiator,
      peerName: nameOf(peerRank),
      rtc: { iceServers: [...client.iceServers], ...options.rtc },
      env: options.env,
      onChannel: (channel, lane) => {
        const adding = addLink(epoch, peerRank, channelTransport(channel), lane)
        taken.push(adding)
        // Awaited below; until then a failure must not count as unhandled.
        Promise.resolve(adding).catch(() => undefined)
      },
      onSignal: (attempt, signals) => client.signal(epoch, peerRank, attempt, signals),
      onDown: (error) => down(peerRank, error),
    })
    connections.set(peerRank, connection)
    connection.start()
    await connection.connected
    await Promise.all(taken)
  }

  const overPort = async ({ peerRank }: AssignedLink) => {
    if (!ports) {
      throw new PeerError(
        'peer.unreachable',
        `link to ${nameOf(peerRank)}: expected this browser's ports, got none. Use the transport "webrtc".`,
      )
    }
    // Member ids are fresh for every connection to the server, so the key names this pair in this epoch alone.
    const low = Math.min(rank, peerRank)
    const high = Math.max(rank, peerRank)
    const { members } = assignment
    const key = `${epoch} ${members[low].id} ${members[high].id}`
    const pair = await ports.pair(key, rank === low ? 0 : 1, nameOf(peerRank))
    if (isClosed) {
      pair.release()
      pair.port.close()
      return
    }
    pairs.push(pair)
    void pair.gone.then(() =>
      down(
        peerRank,
        new PeerError(
          'peer.lost',
          `link to ${nameOf(peerRank)}: ended: its tab let go of the port.`,
        ),
      ),
    )
    await addLink(epoch, peerRank, { kind: 'port', port: pair.port }, 0)
  }

  /** The worker makes it itself: it has WebSockets. */
  const overRelay = async ({ peerRank, initiator }: AssignedLink) => {
    const [offers, answers] = initiator ? [rank, peerRank] : [peerRank, rank]
    const { members } = assignment
    const transport: Transport = {
      kind: 'relay',
      relay: {
        address: client.address,
        channel: `${epoch} ${members[offers].id} ${members[answers].id}`,
        side: initiator ? 0 : 1,
        peerName: nameOf(peerRank),
      },
    }
    await addLink(epoch, peerRank, transport, 0)
  }
  const ways = { port: overPort, relay: overRelay, webrtc: overWebRtc }

  const form = async (link: AssignedLink) => {
    try {
      await ways[link.kind](link)
    } catch (thrown) {
      if (!isClosed) {
        client.linkDown(epoch, link.peerRank, messageOf(thrown))
        interrupt(thrown)
        close()
      }
      throw thrown
    }
  }

  const connected = (async () => {
    const formed = assignment.links.map(form)
    for (const one of formed) one.catch(() => undefined) // the first failure is the one reported
    await Promise.race([Promise.all(formed), interrupted])
    client.ready(epoch)
  })()
  connected.catch(() => undefined)

  const stats = async (): Promise<RingStats> => {
    const links = await Promise.all(
      assignment.links.map(async ({ peerRank, kind }): Promise<FormedLink> => {
        const connection = connections.get(peerRank)
        return { peerRank, kind, stats: connection ? await connection.stats() : null }
      }),
    )
    const sum = (field: keyof LinkStats) =>
      links.reduce((total, link) => total + (link.stats?.[field] ?? 0), 0)
    return {
      total: {
        bytesSent: sum('bytesSent'),
        bytesReceived: sum('bytesReceived'),
        messagesSent: sum('messagesSent'),
        messagesReceived: sum('messagesReceived'),
      },
      links,
    }
  }
  return { connected, stats, close }
}

/** Says goodbye when the tab closes or navigates, so the others learn it at once. Returns a function that undoes it. */
export function leaveOnPageHide(client: SignalClient): () => void {
  const leave = () => client.bye()
  window.addEventListener('pagehide', leave)
  return () => window.removeEventListener('pagehide', leave)
}
