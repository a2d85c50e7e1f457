import { channelTransport, type Transport } from '../../peer/link/channel-transport.ts'
import type { AssignedLink, Assignment } from '../../peer/room/messages.ts'
import { abortError } from '../../peer/room/refusals.ts'
import { FormingLink, type FormingLinkOptions, linkKey } from '../../peer/tab/forming-link.ts'
import type { LanedStats } from '../../peer/tab/laned-connection.ts'
import { LateConnection } from '../../peer/tab/late-connection.ts'
import { OwnParts } from '../../peer/tab/link-parts.ts'
import type { LocalPorts } from '../../peer/tab/local-ports.ts'
import type { SignalClient } from '../../peer/tab/signal.ts'
import { type Env, systemEnv } from '../../util/env.ts'
import { messageOf, PeerError, RunError } from '../../util/errors.ts'

export interface RoomLinkOptions {
  readonly client: Pick<SignalClient, 'address' | 'token'>
  readonly assignment: Pick<Assignment, 'epoch' | 'rank' | 'members'>
  readonly link: AssignedLink
  /** This tab's ports; needed where the link is one. */
  readonly ports: LocalPorts | null
  readonly rtc: RTCConfiguration
  readonly send: FormingLinkOptions['send']
  readonly onTransport: FormingLinkOptions['onTransport']
  readonly onDown?: FormingLinkOptions['onDown']
  readonly onGone?: FormingLinkOptions['onGone']
  readonly env?: Env
}

/** One link of a tab in a room, from the page's side. */
export interface RoomLink extends Pick<FormingLink, 'formed' | 'receive'> {
  stats(): Promise<FormedLink>
  /** Ends it; idempotent. */
  close(): void
}

/** Forms a link to another tab of the room. */
export function formRoomLink(options: RoomLinkOptions): RoomLink {
  const { client, assignment, link, ports, env = systemEnv, ...others } = options
  const { epoch, rank, members } = assignment
  const { peerRank, kind, initiator, canRelay } = link
  const parts = new OwnParts({
    ports: async () => ports,
    makeConnection: (made) => new LateConnection({ ...made, env }),
    transportOf: channelTransport,
  })
  const key = linkKey(epoch, members, rank, peerRank)
  const forming = new FormingLink({
    ...others,
    plan: { way: kind, isInitiator: initiator, canRelay },
    key,
    peerName: `rank ${peerRank} (${members[peerRank].name})`,
    parts,
    relay: { address: client.address, token: client.token },
    env,
  })
  return {
    formed: forming.formed,
    receive: (attempt, data) => forming.receive(attempt, data),
    stats: async () => ({ peerRank, kind: forming.way as RoomWay, stats: await parts.stats(key) }),
    close() {
      forming.close()
      parts.close()
    },
  }
}

type RoomWay = AssignedLink['kind']

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
  /** What else this rank needs before it is ready. */
  prepared?: Promise<void>
  /** ICE servers and policy; by default the servers that the signaling server sent. */
  rtc?: RTCConfiguration
  /** A link that was up is down. The server has the report, and answers with `abort`. */
  onDown?: (peerRank: number, error: PeerError) => void
  /** The tab at the other end of a port has closed, for sure. */
  onGone?: (peerRank: number) => void
  /** True if a link that cannot be formed ends nothing here: the server says who continues without whom. Default false. */
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

export interface RingLinks {
  /**
   * Resolves when all links are up and `ready` is sent to the server.
   * errors: PeerError `peer.unreachable` with the reason (the server has it too); `peer.aborted` when the epoch ended first.
   */
  readonly connected: Promise<void>
  /** Read before `close`: a closed connection keeps its last counts only. */
  stats(): Promise<readonly FormedLink[]>
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
  const { epoch } = assignment
  let isClosed = false
  let isFinished = false
  let interrupt!: (error: unknown) => void
  const interrupted = new Promise<never>((_, reject) => {
    interrupt = reject
  })
  interrupted.catch(() => undefined)
  const unsubscribe: (() => void)[] = []
  const forming = new Map<number, RoomLink>()
  const rtc = { iceServers: [...client.iceServers], ...options.rtc }

  const close = () => {
    if (isClosed) return
    isClosed = true
    for (const off of unsubscribe) off()
    for (const link of forming.values()) link.close()
    interrupt(
      new PeerError(
        'peer.aborted',
        `epoch ${epoch}: its links were closed on this side. Start again.`,
      ),
    )
  }

  for (const link of assignment.links) {
    const { peerRank } = link
    const formed = formRoomLink({
      ...{ client, assignment, link, ports, rtc, env },
      send: (attempt, data) => client.signal(epoch, peerRank, attempt, data),
      onTransport: (transport, lane) => addLink(epoch, peerRank, transport, lane),
      onDown: (error) => {
        if (isFinished) return
        client.linkDown(epoch, peerRank, error.message)
        options.onDown?.(peerRank, error)
      },
      onGone: () => options.onGone?.(peerRank),
    })
    forming.set(peerRank, formed)
  }
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

  const form = async ([peerRank, link]: [number, RoomLink]) => {
    try {
      const way = (await link.formed) as RoomWay
      if (!isClosed) options.onLinked?.(peerRank, way)
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

  const stats = () => Promise.all([...forming.values()].map((link) => link.stats()))
  return { connected, stats, close }
}

/** Which rank that was, for an error that says only that it cannot be reached. */
const unreachable = (thrown: unknown, peerRank: number): unknown =>
  thrown instanceof PeerError && thrown.code === 'peer.unreachable'
    ? new RunError(thrown.code, thrown.message, { ranks: [peerRank] }, { cause: thrown })
    : thrown
