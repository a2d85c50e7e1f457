import { ringEdges } from '../../peer/room/edges.ts'
import { canFallBack } from '../../peer/room/topology.ts'
import { checkedWithout, isMaker, isRoomOn } from '../state/room-facts.ts'
import type { Failure, Run } from '../state/run.ts'
import type { Snapshot } from '../state/snapshot.ts'

/** What came between ranks that found no way to each other, for people: who, why, and whom to leave out. */
export interface Unreached {
  readonly title: string
  /** Of those that it is about. */
  readonly names: string
  /** The likely cause: one or two sentences. */
  readonly text: string
  /** For the maker: members to leave out of the next start, one choice each, by name. */
  readonly without: readonly { readonly names: string; readonly ids: readonly string[] }[]
  /** The error as received; null where there was none yet. */
  readonly detail: string | null
}

/** Null where this tab's last run did not end by a link that could not be made, or, before its first, all neighbours reach each other. */
export function unreachedOf(snapshot: Snapshot): Unreached | null {
  const { run, lobby } = snapshot
  if (!run) {
    const parties = isRoomOn(snapshot) ? null : partiesAhead(snapshot)
    return parties && unreachedBy(snapshot, lobby!.members, parties, null)
  }
  // Who joins a run gets the data and compiles while its links form.
  if (run.end?.kind !== 'failed' || (run.phase !== 'connect' && !run.joins)) return null
  const parties = partiesOf(run, run.end)
  return parties && unreachedBy(snapshot, run.members, parties, run.end.text)
}

function unreachedBy(
  snapshot: Snapshot,
  members: Run['members'],
  { ranks, is }: Parties,
  detail: string | null,
): Unreached {
  const names = (of: readonly number[]) =>
    new Intl.ListFormat('en').format(of.map((rank) => members[rank].name))
  const title = {
    own: `${names(ranks)} cannot be reached`,
    pair: `${names(ranks)} cannot reach each other`,
    late: `${names(ranks)} did not connect in time`,
  }[is]
  const choices = is === 'late' ? [ranks] : ranks.map((rank) => [rank])
  return {
    title,
    names: names(ranks),
    text: causeOf(detail ?? '', names(ranks), is === 'pair'),
    without: isMaker(snapshot)
      ? choices
          .map((chosen) => ({ names: names(chosen), ids: removable(snapshot, members, chosen) }))
          .filter(({ ids }) => ids.length > 0 && checkedWithout(snapshot, ids).config)
      : [],
    detail,
  }
}

interface Parties {
  readonly ranks: readonly number[]
  /** own: another that this rank has no link to; pair: two others; late: who had not all of its links. */
  readonly is: 'own' | 'pair' | 'late'
}

/** Who cannot be reached while the room waits, as neighbours in the ring measure it; for the maker, and who is one of those neighbours. */
function partiesAhead(snapshot: Snapshot): Parties | null {
  const { lobby, ownId, hasRelay } = snapshot
  const members = lobby?.members ?? []
  const own = members.findIndex(({ id }) => id === ownId)
  const edges = ringEdges(members.length)
  const broken = edges.filter(([from, to]) => {
    const { toNext } = members[from].measured ?? {}
    const isBroken = toNext?.id === members[to].id && toNext.us === null
    return isBroken && !(hasRelay && canFallBack(members[from], members[to]))
  })
  const isConcerned = isMaker(snapshot) || broken.some((edge) => edge.includes(own))
  if (broken.length === 0 || !isConcerned) return null
  const ranks = members.map((_, rank) => rank).filter((rank) => rank !== own)
  const isCutOff = (rank: number) =>
    edges.every((edge) => !edge.includes(rank) || broken.includes(edge))
  const cutOff = ranks.filter(isCutOff)
  if (cutOff.length > 0) return { ranks: cutOff, is: 'own' }
  const fromOwn = ranks.filter((rank) =>
    broken.some((edge) => edge.includes(rank) && edge.includes(own)),
  )
  return fromOwn.length > 0 ? { ranks: fromOwn, is: 'own' } : { ranks: broken[0], is: 'pair' }
}

/** Who could not be reached, by this tab's links and the room. */
function partiesOf(run: Run, { code, ranks = [] }: Failure): Parties | null {
  if (code !== 'peer.late' && code !== 'peer.unreachable') return null
  const unreached = ranks.filter((rank) => rank !== run.rank && rank < run.members.length)
  if (code === 'peer.late') return unreached.length > 0 ? { ranks: unreached, is: 'late' } : null
  if (unreached.length > 0) return { ranks: unreached, is: unreached.length === 2 ? 'pair' : 'own' }
  const others = run.peers.filter((rank) => !(rank in run.ways))
  return others.length > 0 ? { ranks: others, is: 'own' } : null
}

/** The reason that WebRTC gives (peer/tab/webrtc.ts), in plain words. */
function causeOf(text: string, names: string, isPair: boolean): string {
  if (text.includes('this browser offers no address'))
    return isPair
      ? 'One of the two browsers has no address to connect from. It may be offline or block WebRTC.'
      : 'This browser has no address to connect from. It may be offline or block WebRTC.'
  if (text.includes('the other browser offers no address'))
    return `The browser on the other side (${names}) has no address to connect to. It may be offline or block WebRTC.`
  if (text.includes('No TURN server gave an address'))
    return 'The browsers cannot reach each other directly, and the TURN server that would relay their data did not answer.'
  if (text.includes('did not answer'))
    return 'A tab did not answer. Its browser may be asleep, or its machine may be offline.'
  return 'The browsers cannot reach each other. Usually they are on different networks, or a firewall or guest network keeps devices apart.'
}

/** The members of these ranks that are still in the room and can be taken out of it: none of this tab. */
function removable(
  { lobby, ownId }: Snapshot,
  members: Run['members'],
  ranks: readonly number[],
): string[] {
  const own = lobby?.members.find(({ id }) => id === ownId)
  return ranks
    .map((rank) => members[rank].id)
    .filter((id) => {
      const member = lobby?.members.find((one) => one.id === id)
      return member && id !== ownId && (!member.tab || member.tab !== own?.tab)
    })
}
