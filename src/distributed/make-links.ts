import type { Link } from '../peer/link.ts'
import { PortLink } from '../peer/port.ts'
import type { Store } from '../peer/store/store.ts'
import { messageOf, PeerError } from '../util/errors.ts'
import type { Gathered } from './gather-ranks.ts'
import type { LinkMaker } from './link-maker.ts'
import { Mailbox } from './mailbox.ts'
import type { PlannedLink } from './plan-links.ts'

/** What ranks write to each other while their links are made. */
type Message =
  /** What a connection's other side must hear. */
  | { kind: 'signal'; attempt: number; signals: unknown }
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
  /** Ends the making, on all ranks. */
  signal: AbortSignal | undefined
}

/**
 * Resolves when this rank's links are up. What the two sides of a connection must tell each other goes through the store.
 *
 * errors: `peer.unreachable` with the reason, on all ranks.
 */
export async function makeLinks(options: MakeLinksOptions): Promise<MadeLinks> {
  const { store, gathered, planned, maker, rtc, signal } = options
  const { round, rank, members } = gathered
  const keyOf = (peer: number) => {
    const [low, high] = [Math.min(rank, peer), Math.max(rank, peer)]
    return `${round} ${members[low].id} ${members[high].id}`
  }
  const nameOf = (peer: number) => `rank ${peer} (${members[peer].name})`

  let isTold = false
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
      else {
        isTold = true
        fail(new PeerError('peer.unreachable', `${nameOf(from)} gave up: ${message.text}`))
      }
    },
    fail,
  )
  const handleAbort = () => fail(signal?.reason)
  signal?.addEventListener('abort', handleAbort)
  const settle = () => {
    signal?.removeEventListener('abort', handleAbort)
    return mailbox.stop()
  }

  const make = async ({ peer, way, isInitiator }: PlannedLink): Promise<[number, Link]> => {
    const key = keyOf(peer)
    const peerName = nameOf(peer)
    if (way === 'webrtc') {
      const link = await maker.connect({ key, isInitiator, peerName, rtc }, (attempt, signals) => {
        mailbox
          .send(peer, { kind: 'signal', attempt, signals })
          .catch((thrown) => fail(lost(thrown)))
      })
      return [peer, link]
    }
    let gone!: () => void
    const isGone = new Promise<void>((resolve) => {
      gone = resolve
    })
    const side = rank < peer ? 0 : 1
    const port = await maker.openPort({ way, key, side, peerName }, gone)
    return [peer, new PortLink(port, { gone: isGone })]
  }

  const made: Link[] = []
  const making = planned.map(async (link) => {
    const one = await make(link)
    made.push(one[1])
    return one
  })
  try {
    const links = await Promise.race([Promise.all(making), failed])
    return { links: new Map(links), settle, failed }
  } catch (caught) {
    // A link's own error names its other end; the rank that gives up tells both.
    const isOwn = !isTold && caught instanceof PeerError && caught.code === 'peer.unreachable'
    const thrown = isOwn
      ? new PeerError(caught.code, `initProcessGroup: rank ${rank}: ${caught.message}`)
      : caught
    for (const link of made) link.close('the group was not formed')
    if (!isTold) {
      const others = members.filter((member) => member.rank !== rank)
      const told = others.map((member) =>
        mailbox.send(member.rank, { kind: 'failed', text: messageOf(caught) }),
      )
      await Promise.allSettled(told)
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
