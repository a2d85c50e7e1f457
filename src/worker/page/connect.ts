import { channelTransport, type Transport } from '../../peer/link/channel-transport.ts'
import { type LinkStats, sumStats } from '../../peer/link/link.ts'
import type { AssignedLink, Assignment } from '../../peer/room/messages.ts'
import { abortError } from '../../peer/room/refusals.ts'
import { FormingLink } from '../../peer/tab/forming-link.ts'
import type { LanedStats } from '../../peer/tab/laned-connection.ts'
import { LateConnection } from '../../peer/tab/late-connection.ts'
import { OwnParts } from '../../peer/tab/link-parts.ts'
import type { LocalPorts } from '../../peer/tab/local-ports.ts'
import type { SignalClient, SignalEvents } from '../../peer/tab/signal.ts'
import { type Env, systemEnv } from '../../util/env.ts'
import { messageOf, PeerError, RunError } from '../../util/errors.ts'

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
  const { client, assignment, ports, addLink, env = systemEnv } = options
  const { epoch, rank, members } = assignment
  const own = new OwnParts({
    ports: async () => ports,
    makeConnection: (made) => new LateConnection({ ...made, env }),
    transportOf: channelTransport,
  })
  let isClosed = false
  let isFinished = false
  let interrupt!: (error: unknown) => void
  const interrupted = new Promise<never>((_, reject) => {
    interrupt = reject
  })
  interrupted.catch(() => undefined)
  const unsubscribe: (() => void)[] = []
  const forming = new Map<number, FormingLink>()
  /** By rank: links that are up, as they went. */
  const ways = new Map<number, AssignedLink['kind']>()
  const rtc = { iceServers: [...client.iceServers], ...options.rtc }

  const close = () => {
    if (isClosed) return
    isClosed = true
    for (const off of unsubscribe) off()
    for (const link of forming.values()) link.close()
    own.close()
    interrupt(
      new PeerError(
        'peer.aborted',
        `epoch ${epoch}: its links were closed on this side. Start again.`,
      ),
    )
  }

  /** The same for both ends: epochs are fresh for each linking. */
  const keyOf = (peer: number) =>
    [epoch, ...[rank, peer].sort((a, b) => a - b).map((one) => members[one].id)].join(' ')

  for (const { peerRank, kind, initiator, canRelay } of assignment.links)
    forming.set(
      peerRank,
      new FormingLink({
        plan: { way: kind, isInitiator: initiator, canRelay },
        key: keyOf(peerRank),
        peerName: `rank ${peerRank} (${members[peerRank].name})`,
        parts: own,
        rtc,
        relay: { address: client.address, token: client.token },
        env,
        send: (attempt, data) => client.signal(epoch, peerRank, attempt, data),
        onTransport: (transport, lane) => addLink(epoch, peerRank, transport, lane),
        onDown: (error) => {
          if (isFinished) return
          client.linkDown(epoch, peerRank, error.message)
          options.onDown?.(peerRank, error)
        },
        onGone: () => options.onGone?.(peerRank),
      }),
    )
  unsubscribe.push(
    client.on('signal', ({ epoch: of, from, attempt, data }) => {
      if (of === epoch) forming.get(from)?.receive(attempt, data)
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

  const form = async ([peerRank, link]: [number, FormingLink]) => {
    try {
      const way = (await link.formed) as AssignedLink['kind']
      if (isClosed) return
      ways.set(peerRank, way)
      options.onLinked?.(peerRank, way)
    } catch (thrown) {
      if (!isClosed) {
        client.linkDown(epoch, peerRank, messageOf(thrown))
        if (options.isElastic) return
        interrupt(unreachable(thrown, peerRank))
        close()
      }
      throw unreachable(thrown, peerRank)
    }
  }

  const connected = (async () => {
    const formed = [...forming].map(form)
    for (const one of formed) one.catch(() => undefined) // the first failure is the one reported
    await Promise.race([Promise.all([...formed, options.prepared]), interrupted])
    client.ready(epoch)
  })()
  connected.catch(() => undefined)

  const stats = async (): Promise<RingStats> => {
    const links = await Promise.all(
      assignment.links.map(
        async ({ peerRank, kind }): Promise<FormedLink> => ({
          peerRank,
          kind: ways.get(peerRank) ?? kind,
          stats: await own.stats(keyOf(peerRank)),
        }),
      ),
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
