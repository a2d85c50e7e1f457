import type { JsonValue } from '../../util/json-value.ts'
import { withoutEpoch } from '../collective/failure.ts'
import type { MessageOf } from '../room/client-messages.ts'
import { newcomerEdges, newcomersAtOnce } from '../room/edges.ts'
import type { Abort } from '../room/messages.ts'
import { leftOutText } from '../room/refusals.ts'
import { keepNewest } from './keep-newest.ts'
import { Linking, type Member, planFor, type RunRoom } from './linking.ts'

type Failure = Pick<Abort, 'code' | 'ranks' | 'leftOut'>
const noFailure: Failure = { code: 'peer.aborted', ranks: [] }

/** The part of a run that its newcomers need. */
export interface BegunRun {
  readonly room: RunRoom
  /** The epoch with which it began. */
  readonly first: number
  readonly key: string
  readonly settings: JsonValue
  ranks(): readonly Member[]
  /** Returns whether the member is to get links: it has none from a rank that it has or had, and is in no other run. */
  isFree(member: Member): boolean
  /** Ranks may still come back that newcomers are to be linked to. */
  isGathering(): boolean
  nextEpoch(): number
  /** It was linked, and has failed before it trained. */
  failed(newcomer: Member): void
  /** They have their links. */
  joined(newcomers: readonly Member[]): void
}

/**
 * Newcomers to an elastic run that is on get links (`newcomerEdges`), in an epoch for it, while the ranks train. One such linking at a time, of
 * as many newcomers as leave nobody more links to form than in a full mesh:
 *
 *   newcomer -1 s-> assign to ranks and newcomers -all ready-> start: the newcomers are ranks
 *                     |  linkDown, abort of a newcomer: without it, for the rest of the run; after linkDown of one that was a rank until it
 *                     |  is heard again
 *                     |  a rank or a newcomer is lost: without it
 *                     |  not ready in time: without those newcomers, until they are heard again
 *                     |  (each time they are left out: later, and fewer at once, for many links at once fill a slow connection)
 *                     |  20 s after the first newcomer is ready, and a rank does not report it: with it
 *                     +-no newcomer left-> abort to the ranks, which close its links
 */
export class Newcomers {
  private linking: Linking | null = null
  /** Of the newest linking, which may be over: how many of its members were ranks. */
  private ranksBefore = 0
  private isOn = false
  /** One newcomer is ready. */
  private isHurried = false
  /** Members that get no links, by id: until they are heard again after that time, or to the run's end. */
  private readonly leftOut = new Map<string, number>()
  /** How often members were left out, by id. */
  private readonly failures = new Map<string, number>()
  private cancelReady: () => void = () => undefined
  /** The next linking, once one is due. */
  private cancelDue: (() => void) | null = null

  constructor(private readonly run: BegunRun) {}

  /** A message of a member has come. */
  heard({ id }: Member): void {
    const untilMs = this.leftOut.get(id) ?? Number.POSITIVE_INFINITY
    if (this.run.room.env.now() < untilMs) return
    this.leftOut.delete(id)
    this.changed()
  }

  /** Members or ranks are others: a linking continues with those that still belong to it, or newcomers get one soon. */
  changed(): void {
    const ranks = this.run.ranks()
    if (this.isOn) {
      for (const [at, { member, isOut }] of this.linking!.places.entries()) {
        const { connectionId, info } = member
        const belongs = this.isNewcomer(at)
          ? connectionId !== null && !info.watches
          : ranks.includes(member)
        if (!isOut && !belongs) this.drop(at, 'this tab is no rank now.')
      }
      this.settle('the last one has left.')
    }
    if (this.isOn || this.cancelDue || this.run.isGathering()) return
    if (this.waiting().length === 0) return
    const { env, limits } = this.run.room
    this.cancelDue = env.after(limits.joinMs, () => {
      this.cancelDue = null
      this.link()
    })
  }

  /** As many as one linking takes, first those that were left out fewest times; those that ask for other transports than the ranks wait. */
  private waiting(): Member[] {
    const { room } = this.run
    const all = [...this.run.ranks()]
    const before = all.length
    const failuresOf = ({ id }: Member) => this.failures.get(id) ?? 0
    const byFailures = [...room.members()].sort((a, b) => failuresOf(a) - failuresOf(b))
    for (const one of byFailures) {
      const { id, connectionId } = one
      const isOutside = one.info.watches || !this.run.isFree(one) || this.leftOut.has(id)
      if (connectionId === null || isOutside) continue
      const atOnce = Math.max(1, Math.floor(newcomersAtOnce / 4 ** failuresOf(one)))
      if (all.length - before >= atOnce) break
      if ('links' in planFor([...all, one], room.hasRelay)) all.push(one)
    }
    return all.slice(before)
  }

  private link(): void {
    const newcomers = this.waiting()
    if (newcomers.length === 0) return
    const { room, first, key } = this.run
    const members = [...this.run.ranks(), ...newcomers]
    const before = members.length - newcomers.length
    const plan = planFor(members, room.hasRelay, newcomerEdges(before, members.length))
    if (!('links' in plan)) return
    this.ranksBefore = before
    const epoch = this.run.nextEpoch()
    const elastic = { run: first, key, joining: newcomers.length }
    this.isOn = true
    this.isHurried = false
    this.linking = new Linking(room, epoch, members, plan.links, room.limits.prepareMs, elastic)
    this.cancelReady = room.env.after(this.linking.readyMs, () => this.endWait())
    room.changed()
  }

  private isNewcomer(at: number): boolean {
    return at >= this.ranksBefore
  }

  /** Takes what is said in the epoch of the newest linking. False for what is not. */
  receive(
    member: Member,
    message: MessageOf<'signal' | 'ready' | 'linkDown' | 'abort' | 'done'>,
  ): boolean {
    const { linking } = this
    const at = linking?.indexOf(member) ?? -1
    if (linking?.epoch !== message.epoch || at < 0) return false
    switch (message.type) {
      case 'signal':
        // Also later: a way may be found after another has brought the link up.
        linking.passBox(at, message)
        return true
      case 'ready':
        linking.places[at].isReady = true
        if (!this.isOn) return true
        this.settle()
        // The other newcomers get ready in about that time, or this one does not wait for them.
        if (this.isOn && this.isNewcomer(at)) this.hurry()
        return true
      case 'linkDown': {
        const { peerRank } = message
        if (!linking.hasLink(at, peerRank, 'linkDown') || !this.isOn) return true
        // Every link has a newcomer, and newcomers come after all ranks.
        const why = linking.downText(at, message)
        if (!linking.places[peerRank].isOut) {
          const newcomer = Math.max(at, peerRank)
          // Links to one that was a rank have worked before.
          const was = linking.places[newcomer].member.outOf === this.run.key
          const failure: Failure = { code: 'peer.unreachable', ranks: [at, peerRank] }
          this.leaveOut(newcomer, why, failure, was ? 'again' : 'barred')
        }
        this.settle(why)
        return true
      }
      case 'abort': {
        if (!this.isNewcomer(at)) return false
        // It has been dropped, and may take part again.
        if (member.info.watches && linking.places[at].isOut) return true
        const why = withoutEpoch(message.text, message.epoch)
        this.leaveOut(at, why, { code: 'peer.aborted', ranks: [at] }, 'barred')
        if (this.isOn) this.settle(why)
        else this.run.failed(member)
        return true
      }
      case 'done':
        return false
    }
  }

  /** Shortens the wait once the first newcomer is ready: the others have as long as ranks whose run begins. */
  private hurry(): void {
    if (this.isHurried) return
    this.isHurried = true
    this.cancelReady()
    const { env, limits } = this.run.room
    const fallbackMs = this.linking!.readyMs - limits.prepareMs
    this.cancelReady = env.after(limits.readyMs + fallbackMs, () => this.endWait())
  }

  /** Ends a wait in which not all have reported their links. If newcomers have theirs, ranks have them too, even unreported. */
  private endWait(): void {
    const { late, places } = this.linking!
    const why = this.linking!.lateText()
    for (const [at, { isOut, isReady }] of places.entries())
      if (this.isNewcomer(at) && !isOut && !isReady)
        this.leaveOut(at, why, { code: 'peer.late', ranks: late }, 'again')
    this.settle(why, true)
  }

  private leaveOut(at: number, why: string, failure: Failure, leftOut: 'again' | 'barred'): void {
    const { id } = this.linking!.places[at].member
    const { env, limits } = this.run.room
    const failures = this.failures.get(id) ?? 0
    const againMs = Math.min(limits.linkAgainMaxMs, limits.linkAgainMs * (2 ** failures - 1))
    const untilMs = leftOut === 'again' ? env.now() + againMs : Number.POSITIVE_INFINITY
    keepNewest(this.failures, id, failures + 1, limits.leftOutPerRun)
    keepNewest(this.leftOut, id, untilMs, limits.leftOutPerRun)
    this.drop(at, leftOutText(why), { ...failure, leftOut })
  }

  private drop(at: number, text: string, failure: Failure = noFailure): void {
    const { places, epoch } = this.linking!
    places[at].isOut = true
    const whole = `epoch ${epoch}: ${text}`
    this.run.room.send(places[at].member, { type: 'abort', epoch, ...failure, text: whole })
  }

  /** The linking is over once no newcomer is left, or all that are left are ready; `isOver`: or all newcomers. */
  private settle(why = '', isOver = false): void {
    const { epoch, places, isReady } = this.linking!
    const newcomers = places.flatMap(({ member, isOut }, at) =>
      this.isNewcomer(at) && !isOut ? [member] : [],
    )
    if (newcomers.length > 0 && !isReady && !isOver) return
    this.stop()
    if (newcomers.length > 0) {
      for (const { id } of newcomers) this.failures.delete(id)
      this.linking!.send({ type: 'start', epoch, settings: this.run.settings })
      this.run.joined(newcomers)
      return
    }
    const text = `epoch ${epoch}: no newcomer is left: ${why}`
    this.linking!.send({ type: 'abort', epoch, ...noFailure, text })
    this.changed()
  }

  private stop(): void {
    this.cancelReady()
    this.isOn = false
  }

  /** The run is over. */
  end(): void {
    this.cancelDue?.()
    if (!this.isOn) return
    this.stop()
    const ranks = this.run.ranks()
    for (const [at, { member, isOut }] of this.linking!.places.entries())
      if (!isOut && !ranks.includes(member))
        this.drop(at, 'the run has ended before this tab could join it.')
  }
}
