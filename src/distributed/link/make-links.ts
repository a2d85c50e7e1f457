import type { Link } from '../../peer/link/link.ts'
import { PortLink } from '../../peer/link/port.ts'
import { relayOver } from '../../peer/link/relay-link.ts'
import type { RoomAddress } from '../../peer/room/room-url.ts'
import type { Store } from '../../peer/store/store.ts'
import { LinkVote } from '../../peer/tab/link-vote.ts'
import { systemEnv } from '../../util/env.ts'
import { messageOf, PeerError } from '../../util/errors.ts'
import { tell } from '../../util/log.ts'
import type { Gathered } from '../rendezvous/gather-ranks.ts'
import { Mailbox } from '../rendezvous/mailbox.ts'
import type { PlannedLink } from '../rendezvous/plan-links.ts'
import type { LinkMaker } from './link-maker.ts'

/** What ranks write to each other while their links are made. */
type Message =
  /** What a connection's other side must hear. */
  | { kind: 'signal'; attempt: number; signals: unknown }
  /** Whether a connection is up that may be replaced by the relay: it stays if it is on both sides. */
  | { kind: 'connected'; isUp: boolean }
  /** This rank gives up: so must all. */
  | { kind: 'failed'; text: string }

export interface MadeLinks {
  /** By rank. */
  links: Map<number, Link>
  /** Ends the waiting for a rank that fails; the links stay. */
  settle(): Promise<void>
  /** Rejects when another rank has given up; never resolves. */
  failed: Promise<never>
}

export interface MakeLinksOptions {
  store: Store
  gathered: Gathered
  planned: readonly PlannedLink[]
  maker: LinkMaker
  rtc: RTCConfiguration | undefined
  /** Through which links go that are planned so, or may be. */
  relay: RoomAddress | undefined
  /** Ends the making, on all ranks. */
  signal: AbortSignal | undefined
}

/**
 * Resolves when this rank's links are up. The two sides of a connection signal through the store.
 *
 * errors: `peer.unreachable` with the reason, on all ranks.
 */
export async function makeLinks(options: MakeLinksOptions): Promise<MadeLinks> {
  const { store, gathered, planned, maker, rtc, relay, signal } = options
  const { round, rank, members } = gathered
  const keyOf = (peer: number) => {
    const [low, high] = [Math.min(rank, peer), Math.max(rank, peer)]
    return `${round} ${members[low].id} ${members[high].id}`
  }
  const nameOf = (peer: number) => `rank ${peer} (${members[peer].name})`

  const votes = new Map<number, LinkVote>()
  const voteOf = (peer: number): LinkVote => {
    const vote = votes.get(peer) ?? new LinkVote(systemEnv)
    votes.set(peer, vote)
    return vote
  }

  let isReport = false
  let fail!: (error: unknown) => void
  const failed = new Promise<never>((_, reject) => {
    fail = reject
  })
  failed.catch(() => undefined)
  const mailbox = new Mailbox<Message>(
    store,
    String(round),
    rank,
    (from, message) => {
      if (message.kind === 'signal') maker.signal(keyOf(from), message.attempt, message.signals)
      else if (message.kind === 'connected') voteOf(from).tell(message.isUp)
      else {
        isReport = true
        fail(new PeerError('peer.unreachable', `${nameOf(from)} gave up: ${message.text}`))
      }
    },
    fail,
  )
  const handleAbort = () => fail(signal?.reason)
  if (signal?.aborted) handleAbort()
  signal?.addEventListener('abort', handleAbort)
  const settle = () => {
    signal?.removeEventListener('abort', handleAbort)
    return mailbox.stop()
  }

  const made: Link[] = []
  const send = (peer: number, message: Message) => {
    mailbox.send(peer, message).catch((thrown) => fail(lost(thrown)))
  }

  const overRelay = async (peer: number): Promise<Link> => {
    const link = relayOver({
      address: relay!,
      channel: keyOf(peer),
      side: rank < peer ? 0 : 1,
      peerName: nameOf(peer),
    })
    made.push(link)
    await link.opened
    return link
  }

  /** By WebRTC if both sides say that they have it, else by the relay. */
  const overEither = async (peer: number, connecting: Promise<Link>): Promise<Link> => {
    connecting.catch((thrown) =>
      tell(1, 'group', () => `rank ${rank}: to rank ${peer} by the relay: ${messageOf(thrown)}`),
    )
    const say = (isUp: boolean) => send(peer, { kind: 'connected', isUp })
    if (await voteOf(peer).areUp(connecting, say, nameOf(peer))) return connecting
    maker.disconnect(keyOf(peer))
    connecting.then(
      (link) => link.close('the relay is used instead'),
      () => undefined,
    )
    return overRelay(peer)
  }

  const make = async (link: PlannedLink): Promise<[number, Link]> => {
    const { peer, way, isInitiator, canRelay } = link
    const key = keyOf(peer)
    const peerName = nameOf(peer)
    if (way === 'relay') return [peer, await overRelay(peer)]
    if (way === 'webrtc') {
      const connecting = maker.connect({ key, isInitiator, peerName, rtc }, (attempt, signals) =>
        send(peer, { kind: 'signal', attempt, signals }),
      )
      return [peer, await (canRelay ? overEither(peer, connecting) : connecting)]
    }
    let gone!: () => void
    const isGone = new Promise<void>((resolve) => {
      gone = resolve
    })
    const side = rank < peer ? 0 : 1
    const port = await maker.openPort({ way, key, side, peerName }, gone)
    return [peer, new PortLink(port, { peerClosed: isGone })]
  }

  const making = planned.map(async (link) => {
    const one = await make(link)
    made.push(one[1])
    return one
  })
  try {
    const links = await Promise.race([Promise.all(making), failed])
    signal?.throwIfAborted()
    return { links: new Map(links), settle, failed }
  } catch (caught) {
    // A link's error names its other end only; the rank that gives up adds itself.
    const isOwn = !isReport && caught instanceof PeerError && caught.code === 'peer.unreachable'
    const thrown = isOwn
      ? new PeerError(caught.code, `initProcessGroup: rank ${rank}: ${caught.message}`)
      : caught
    for (const link of made) link.close('the group was not formed')
    if (!isReport) {
      const others = members.filter((member) => member.rank !== rank)
      const sent = others.map((member) =>
        mailbox.send(member.rank, { kind: 'failed', text: messageOf(caught) }),
      )
      await Promise.allSettled(sent)
    }
    await settle()
    throw thrown
  }
}

function lost(thrown: unknown): PeerError {
  return thrown instanceof PeerError
    ? thrown
    : new PeerError('peer.lost', `initProcessGroup: the store failed: ${messageOf(thrown)}`)
}
