import { withTransport } from '../../peer/link/channel-transport.ts'
import type { Link } from '../../peer/link/link.ts'
import { PortLink } from '../../peer/link/port.ts'
import { relayOver } from '../../peer/link/relay-link.ts'
import type { RoomAddress } from '../../peer/room/room-url.ts'
import type { Store } from '../../peer/store/store.ts'
import { FormingLink, linkKey } from '../../peer/tab/forming-link.ts'
import { systemEnv } from '../../util/env.ts'
import { messageOf, PeerError } from '../../util/errors.ts'
import type { JsonValue } from '../../util/json-value.ts'
import type { Gathered } from '../rendezvous/gather-ranks.ts'
import { Mailbox } from '../rendezvous/mailbox.ts'
import type { PlannedLink } from '../rendezvous/plan-links.ts'
import type { LinkMaker } from './link-maker.ts'

/** What ranks write to each other while their links are made. */
type Message =
  /** For the link's other end. */
  | { kind: 'signal'; attempt: number; data: JsonValue }
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
  const nameOf = (peer: number) => `rank ${peer} (${members[peer].name})`

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
      if (message.kind === 'signal') forming.get(from)?.receive(message.attempt, message.data)
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

  const links = new Map<number, Link>()
  const linkTo = (plan: PlannedLink) => {
    const { peer } = plan
    let gone!: () => void
    const isGone = new Promise<void>((resolve) => {
      gone = resolve
    })
    return new FormingLink({
      plan,
      key: linkKey(round, members, rank, peer),
      peerName: nameOf(peer),
      parts: maker,
      rtc,
      relay: relay && { address: relay },
      env: systemEnv,
      send: (attempt, data) =>
        void mailbox
          .send(peer, { kind: 'signal', attempt, data })
          .catch((thrown) => fail(lost(thrown))),
      async onTransport(transport, lane) {
        const before = links.get(peer)
        if (transport.kind === 'relay') {
          before?.close('the relay is used instead')
          const link = relayOver(transport.relay)
          links.set(peer, link)
          await link.opened
        } else if (transport.kind === 'port')
          links.set(peer, new PortLink(transport.port, { peerClosed: isGone }))
        else links.set(peer, withTransport(before, transport, lane))
      },
      onGone: gone,
    })
  }
  const forming = new Map(planned.map((plan) => [plan.peer, linkTo(plan)]))
  try {
    const formed = [...forming.values()].map((link) => link.formed)
    await Promise.race([Promise.all(formed), failed])
    signal?.throwIfAborted()
    return { links, settle, failed }
  } catch (caught) {
    // A link's error names its other end only; the rank that gives up adds itself.
    const isOwn = !isReport && caught instanceof PeerError && caught.code === 'peer.unreachable'
    const thrown = isOwn
      ? new PeerError(caught.code, `initProcessGroup: rank ${rank}: ${caught.message}`)
      : caught
    for (const one of forming.values()) one.close()
    for (const link of links.values()) link.close('the group was not formed')
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
