import { channelTransport, type Transport } from '../../peer/link/channel-transport.ts'
import { type LinkStats, sumStats } from '../../peer/link/link.ts'
import type { AssignedLink, Assignment } from '../../peer/room/messages.ts'
import { abortError } from '../../peer/room/refusals.ts'
import type { LanedStats } from '../../peer/tab/laned-connection.ts'
import { LateConnection } from '../../peer/tab/late-connection.ts'
import { LinkVote, voteIn } from '../../peer/tab/link-vote.ts'
import type { LocalPair, LocalPorts } from '../../peer/tab/local-ports.ts'
import type { SignalClient, SignalEvents } from '../../peer/tab/signal.ts'
import { type Env, systemEnv } from '../../util/env.ts'
import { messageOf, PeerError, RunError } from '../../util/errors.ts'
import { tell } from '../../util/log.ts'

/** How the two ends of a link reach each other before there is one, and hear what ends the forming: through the server, as a rule. */
export interface LinkSignals
  extends Pick<SignalClient, 'signal' | 'ready' | 'linkDown' | 'iceServers' | 'address' | 'token'> {
  on<E extends 'signal' | 'finished' | 'abort'>(
    event: E,
    listener: (value: SignalEvents[E]) => void,
  ): () => void
}

export interface FormLinksOptions {
  client: LinkSignals
  assignment: Assignment
  /** This tab's ports; needed where the assignment says `port`. */
  ports: LocalPorts | null
  /**
   * Takes a transport in the task that made it: transfer it to the worker before returning. What it returns is awaited before
   * this rank is ready. Lane 0 comes again when a connection takes a second attempt: the newest counts. The others join it.
   */
  addLink: (epoch: number, peerRank: number, transport: Transport, lane: number) => unknown
  /** What else this rank needs before it is ready. */
  prepared?: Promise<void>
  /** ICE servers and policy; by default the servers that the signaling server sent. */
  rtc?: RTCConfiguration
  /** A link that was up is down. The server has the report, and answers with `abort`. */
  onDown?: (peerRank: number, error: PeerError) => void
  /** The tab at the other end of a port has closed, for sure. */
  onGone?: (peerRank: number) => void
  /** Whether a link that cannot be formed ends nothing here: the server says who continues without whom. Default false. */
  isElastic?: boolean
  /** A link is up, this way. */
  onLinked?: (peerRank: number, kind: AssignedLink['kind']) => void
  env?: Env
}

/** One formed link, as the page can count it. */
export interface FormedLink {
  peerRank: number
  /** The way that it went. */
  kind: AssignedLink['kind']
  /** Null for what only the worker can count (`Link.stats`): all but WebRTC. */
  stats: LanedStats | null
}

export interface RingStats {
  /** Sum over the WebRTC links, as the browser's data channels count. */
  total: LinkStats
  links: FormedLink[]
}

export interface RingLinks {
  /**
   * Resolves when all links are up and `ready` is sent to the server.
   * errors: PeerError `peer.unreachable` with the reason (the server has it too); `peer.aborted` when the epoch ended first.
   */
  readonly connected: Promise<void>
  /** Read before `close`: a closed connection keeps its last counts only. */
  stats(): Promise<RingStats>
  /** Ends all connections; idempotent. Wait for `finished` or `abort` first: an open neighbour counts a close as a loss. */
  close(): void
}

/**
 * Forms the links that an assignment asks of this rank: those of `roomEdges`, to none alone.
 *
 * The server chose the kind of each link and who offers, the same for both sides. Closes when the epoch is aborted.
 */
export function formLinks(options: FormLinksOptions): RingLinks {
  const { client, assignment, ports, addLink } = options
  const { epoch, rank } = assignment
  const connections = new Map<number, LateConnection>()
  /** By rank, of connections that the relay may replace. */
  const votes = new Map<number, LinkVote>()
  /** By rank: links that are up, as they went. */
  const ways = new Map<number, AssignedLink['kind']>()
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
    interrupt(
      new PeerError(
        'peer.aborted',
        `epoch ${epoch}: its links were closed on this side. Start again.`,
      ),
    )
  }
  unsubscribe.push(
    client.on('signal', ({ epoch: of, from, attempt, data }) => {
      if (of !== epoch) return
      const isUp = voteIn(data)
      if (isUp !== undefined) votes.get(from)?.tell(isUp)
      else connections.get(from)?.receive(attempt, data)
    }),
    client.on('finished', ({ epoch: of }) => {
      if (of !== epoch) return
      isFinished = true // from now on neighbours close as they like
      for (const off of unsubscribe.splice(0)) off()
    }),
    client.on('abort', (abort) => {
      if (abort.epoch !== epoch) return
      interrupt(abortError(abort))
      close()
    }),
  )

  for (const { peerRank, canRelay } of assignment.links)
    if (canRelay) votes.set(peerRank, new LinkVote(options.env ?? systemEnv))

  const nameOf = (peer: number) => `rank ${peer} (${assignment.members[peer].name})`

  const down = (peerRank: number, error: PeerError) => {
    if (isClosed || isFinished) return
    client.linkDown(epoch, peerRank, error.message)
    options.onDown?.(peerRank, error)
  }

  const overWebRtc = async (
    { peerRank, initiator }: AssignedLink,
    onDown = (error: PeerError) => down(peerRank, error),
  ) => {
    if (typeof RTCPeerConnection === 'undefined') {
      throw new PeerError(
        'peer.unreachable',
        `link to ${nameOf(peerRank)}: this browser has no WebRTC. Disable the extension or policy that blocks it, or use transport "relay".`,
      )
    }
    const taken: unknown[] = []
    const connection = new LateConnection({
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
      onDown,
    })
    connections.set(peerRank, connection)
    connection.start()
    await connection.connected
    await Promise.all(taken)
  }

  /** By WebRTC if both sides say that they have it, else through the server. */
  const overEither = async (link: AssignedLink): Promise<AssignedLink['kind']> => {
    const { peerRank } = link
    let isSettled = false
    let lost: PeerError | undefined
    const connecting = overWebRtc(link, (error) => {
      if (isSettled) down(peerRank, error)
      else lost = error // the other side may have given its connection up
    })
    connecting.catch((thrown) =>
      tell(1, 'link', () => `to rank ${peerRank} through the server: ${messageOf(thrown)}`),
    )
    const say = (isUp: boolean) => client.signal(epoch, peerRank, 1, { isUp })
    const areUp = await votes.get(peerRank)!.areUp(connecting, say, nameOf(peerRank))
    isSettled = true
    if (areUp && !lost) return 'webrtc'
    if (areUp) throw lost
    connections.get(peerRank)?.close()
    connections.delete(peerRank)
    if (!isClosed) await overRelay(link)
    return 'relay'
  }

  const overPort = async ({ peerRank }: AssignedLink) => {
    if (!ports) {
      throw new PeerError(
        'peer.unreachable',
        `link to ${nameOf(peerRank)}: this browser has no ports between tabs. Use transport "webrtc".`,
      )
    }
    // Epochs are fresh for each linking, so the key names this pair in this epoch alone.
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
    void pair.gone.then(() => {
      if (!isClosed) options.onGone?.(peerRank)
      down(
        peerRank,
        new PeerError('peer.lost', `link to ${nameOf(peerRank)}: ended: its tab closed.`),
      )
    })
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
        token: client.token,
        channel: `${epoch} ${members[offers].id} ${members[answers].id}`,
        side: initiator ? 0 : 1,
        peerName: nameOf(peerRank),
      },
    }
    await addLink(epoch, peerRank, transport, 0)
  }
  const form = async (link: AssignedLink) => {
    const { peerRank, kind, canRelay } = link
    try {
      let way = kind
      if (kind === 'port') await overPort(link)
      else if (kind === 'relay') await overRelay(link)
      else if (canRelay) way = await overEither(link)
      else await overWebRtc(link)
      if (isClosed) return
      ways.set(peerRank, way)
      options.onLinked?.(peerRank, way)
    } catch (thrown) {
      if (!isClosed) {
        client.linkDown(epoch, link.peerRank, messageOf(thrown))
        if (options.isElastic) return
        interrupt(unreachable(thrown, peerRank))
        close()
      }
      throw unreachable(thrown, peerRank)
    }
  }

  const connected = (async () => {
    const formed = assignment.links.map(form)
    for (const one of formed) one.catch(() => undefined) // the first failure is the one reported
    await Promise.race([Promise.all([...formed, options.prepared]), interrupted])
    client.ready(epoch)
  })()
  connected.catch(() => undefined)

  const stats = async (): Promise<RingStats> => {
    const links = await Promise.all(
      assignment.links.map(async ({ peerRank, kind }): Promise<FormedLink> => {
        const connection = connections.get(peerRank)
        return {
          peerRank,
          kind: ways.get(peerRank) ?? kind,
          stats: connection ? await connection.stats() : null,
        }
      }),
    )
    return { total: sumStats(links.flatMap(({ stats }) => stats ?? [])), links }
  }
  return { connected, stats, close }
}

/** Which rank that was, for an error that says only that it cannot be reached. */
const unreachable = (thrown: unknown, peerRank: number): unknown =>
  thrown instanceof PeerError && thrown.code === 'peer.unreachable'
    ? new RunError(thrown.code, thrown.message, { ranks: [peerRank] }, { cause: thrown })
    : thrown
