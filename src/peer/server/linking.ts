import type { Env } from '../../util/env.ts'
import type { JsonValue } from '../../util/json-value.ts'
import { without } from '../collective/failure.ts'
import type { ClientMessage, MessageOf } from '../room/client-messages.ts'
import type { IceServer } from '../room/ice-servers.ts'
import type { AssignedLink, Assignment, MemberInfo, ServerMessage } from '../room/messages.ts'
import type { Refusal } from '../room/refusals.ts'
import type { TokenBucket } from '../room/token-bucket.ts'
import { planLinks } from '../room/topology.ts'
import type { Limits } from './limits.ts'

/** Of a room. */
export interface Member {
  readonly id: string
  info: MemberInfo
  /** Number of its colour. */
  readonly hue: number
  /** Null once detached. */
  connectionId: string | null
  /** For the server alone: what it came with to be known by when it comes again. The ranks of a tab have the same. */
  readonly token: string | null
  /** True if another rank of its tab is the one to be the maker. */
  readonly isFurther: boolean
  /** Of its boxes between runs. */
  readonly reaches: TokenBucket
  /** Of the bytes with which it asks ranks as an onlooker. */
  readonly askBytes: TokenBucket
  /** Ids of the members that may show it their run: the last one that it asked, as a rank also its neighbours. */
  readonly asks: Set<string>
  /** Key of the elastic run that it was in when it came back, until that has ended or this tab is assigned to another. */
  cameInRun?: string | undefined
  /** Key of the elastic run that it has said `out` of, until it is linked again: what was decided before may still name it. */
  outOf?: string | undefined
}

/** How a member went: by its own bye or removed by the maker, by a refusal that closed its connection, or that just ended. */
export type Going = 'left' | 'removed' | 'refused' | 'ended'

/** The part of a room that a run needs. */
export interface RunRoom {
  readonly env: Env
  readonly limits: Limits
  readonly hasRelay: boolean
  /** In order of joining, the maker first. */
  members(): readonly Member[]
  send(member: Member, message: ServerMessage): void
  refuse(
    member: Member,
    code: Refusal,
    text: string,
    about: ClientMessage['type'],
    isFatal?: boolean,
  ): void
  iceServers(connectionId: string): IceServer[]
  /** The server has just begun: members of runs that it does not know come back, in any order. */
  isServerNew(): boolean
  /** The state, the epoch or the ranks are others. */
  changed(): void
  /** A member has brought a run with these settings, which the room did not know. */
  takenOver(settings: JsonValue): void
  /** The run is over. */
  ended(): void
}

/** For those who ask for a relay where there is none. */
export const withoutRelay =
  'this server has no relay. Start it with --relay, or the Vite plugin with relay: true.'

export type LinkPlan = { readonly links: AssignedLink[][] }
type Refused = { readonly code: Refusal; readonly text: string }

/** The links of ranks that are these members, of `edges` alone where given, or why there can be none. */
export function planFor(
  members: readonly Member[],
  hasRelay: boolean,
  edges?: [number, number][],
): LinkPlan | Refused {
  const plan = planLinks(
    members.map((one) => one.info),
    hasRelay,
    edges,
  )
  // A stranger in the room may ask for what keeps the others from a start: the host hears who it is.
  const askedBy = (transport: string) => {
    const names = members.filter(({ info }) => info.transport === transport)
    return `by ${names.map(({ info: { name } }) => name).join(', ')}`
  }
  if ('apart' in plan) {
    const [a, b] = plan.apart
    const asked = [a, b].map((rank) => members[rank].info.transport)
    const text = asked.includes('port')
      ? `ranks ${a} and ${b} do not share a browser, but transport "port" was requested ${askedBy('port')}. Use "auto" or "webrtc" there, or remove that member.`
      : `ranks ${a} and ${b} request transports "${asked.join('" and "')}" (${asked.map(askedBy).join('; ')}). Use the same for both, or remove one.`
    return { code: 'no-transport', text }
  }
  if (!hasRelay && plan.links.flat().some(({ kind }) => kind === 'relay')) {
    return {
      code: 'no-relay',
      text: `transport "relay" was requested ${askedBy('relay')}, but ${withoutRelay} Or remove that member.`,
    }
  }
  return plan
}

/** A member's part, at its index among the members of the assignment. */
interface Place {
  readonly member: Member
  readonly links: readonly AssignedLink[]
  isReady: boolean
  /** The others form their links without it. */
  isOut: boolean
  boxChars: number
  /** To whom its link cannot be made, as one of the two has said. */
  readonly down: Set<number>
}

/** An epoch whose links form: of ranks whose run begins, or of an elastic run's ranks and the newcomers after them. */
export class Linking {
  readonly places: readonly Place[]
  /** From `assign` until all are to be ready. units: ms. */
  readonly readyMs: number

  /** Sends all members their assignments. `elastic`: as in the message. */
  constructor(
    private readonly room: RunRoom,
    readonly epoch: number,
    members: readonly Member[],
    links: readonly (readonly AssignedLink[])[],
    maxMs: number,
    elastic: Pick<Assignment, 'run' | 'key' | 'joining'> = {},
  ) {
    this.places = members.map((member, at) => ({
      member,
      links: links[at],
      isReady: false,
      isOut: false,
      boxChars: 0,
      down: new Set<number>(),
    }))
    const mayFallBack = links.flat().some(({ canRelay }) => canRelay)
    // Then a link is tried one way after the other.
    this.readyMs = maxMs + (mayFallBack ? room.limits.relayWaitMs : 0)
    // Links need nothing of what was measured, and the message of a full room must fit.
    const listed = members.map(({ id, info: { measured: _, ...info } }) => ({ id, ...info }))
    for (const [rank, member] of members.entries()) {
      if (links[rank].some(({ kind }) => kind === 'webrtc')) this.sendIceServers(member)
      room.send(member, {
        type: 'assign',
        epoch,
        ...elastic,
        rank,
        worldSize: members.length,
        members: listed,
        links: [...links[rank]],
      })
    }
  }

  private sendIceServers(member: Member): void {
    const { connectionId } = member
    if (connectionId === null) return
    const iceServers = this.room.iceServers(connectionId)
    if (iceServers.length > 0) this.room.send(member, { type: 'ice', iceServers })
  }

  /** Its index; -1 for one that has no part, or none any more. */
  indexOf(member: Member): number {
    return this.places.findIndex((one) => one.member === member && !one.isOut)
  }

  /** Of those that have a part. */
  get late(): number[] {
    return this.places.flatMap(({ isReady, isOut }, at) => (isReady || isOut ? [] : [at]))
  }

  get isReady(): boolean {
    return this.late.length === 0
  }

  nameOf(at: number): string {
    return `rank ${at} (${this.places[at].member.info.name})`
  }

  lateText(): string {
    const names = this.late.map((at) => this.nameOf(at)).join(', ')
    return `not every rank had its links in time: missing ${names}.`
  }

  /** A link between two cannot be made. */
  isDown(at: number, peerRank: number): void {
    this.places[at].down.add(peerRank)
    this.places[peerRank].down.add(at)
  }

  /** Without whom all others can be linked: first who lacks the most links, of two that lack as many the later one. */
  get unlinked(): number[] {
    const out: number[] = []
    for (;;) {
      const lacking = this.places.map(({ down }, at) =>
        out.includes(at) ? 0 : [...down].filter((peer) => !out.includes(peer)).length,
      )
      const worst = Math.max(...lacking)
      if (worst === 0) return out
      out.push(lacking.lastIndexOf(worst))
    }
  }

  downText(at: number, { peerRank, text }: MessageOf<'linkDown'>): string {
    const peer = this.nameOf(peerRank)
    return `${this.nameOf(at)} lost its link to ${peer}: ${without(`link to ${peer}: `, text)}`
  }

  /** Refuses a message about a rank that this one has no link to. */
  hasLink(at: number, peerRank: number, about: ClientMessage['type']): boolean {
    const { member, links } = this.places[at]
    if (links.some((link) => link.peerRank === peerRank)) return true
    const text = `this rank has no link to rank ${peerRank}.`
    this.room.refuse(member, 'unknown-rank', text, about)
    return false
  }

  passBox(from: number, { to, attempt, box }: MessageOf<'signal'>): void {
    const place = this.places[from]
    const maxBoxChars = this.room.limits.boxCharsPerLink * place.links.length
    if (!this.hasLink(from, to, 'signal')) return
    place.boxChars += box.length
    if (place.boxChars > maxBoxChars) {
      const text = `at most ${maxBoxChars} characters of signals are allowed in an epoch. Do not send data through signaling.`
      this.room.refuse(place.member, 'too-large', text, 'signal', true)
      return
    }
    const { epoch } = this
    this.room.send(this.places[to].member, { type: 'signal', epoch, from, attempt, box })
  }

  /** To those that have a part. */
  send(message: ServerMessage): void {
    for (const { member, isOut } of this.places) if (!isOut) this.room.send(member, message)
  }
}
