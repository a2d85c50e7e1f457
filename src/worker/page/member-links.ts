import { addEarly } from '../../peer/room/early-signals.ts'
import type { AssignedLink, Assignment } from '../../peer/room/messages.ts'
import { canFallBack, linkKind, machineKey } from '../../peer/room/topology.ts'
import type { LocalPorts } from '../../peer/tab/local-ports.ts'
import type { SignalClient } from '../../peer/tab/signal.ts'
import type { JsonValue } from '../../util/json-value.ts'
import { log } from '../../util/log.ts'
import type { ComputeApi, RunEvent } from '../api.ts'
import { formRoomLink, type RoomLink } from './connect.ts'

type Unlinked = Extract<RunEvent, { event: 'unlinked' }>
type Signal = Extract<RunEvent, { event: 'signal' }>

export interface MemberLinksOptions {
  readonly client: SignalClient
  readonly compute: ComputeApi
  readonly ports: LocalPorts | null
}

/** A link that forms, or has formed. */
interface Forming {
  readonly ballot: number
  readonly peerRank: number
  /** By which the worker knows it. */
  readonly epoch: number
  readonly link: RoomLink
  isUp: boolean
}

/**
 * Links that the members of a run make themselves, where one that lay between them is lost. What WebRTC needs goes by way of other members, so no
 * server has to be there; ports need nothing, and relayed links their server.
 */
export class MemberLinks {
  readonly #options: MemberLinksOptions
  readonly #all: Forming[] = []
  #early: Signal[] = []
  /** Of the newest roster that lacks links. */
  #ballot = 0
  /** Names each link to the worker, apart from the server's epochs. */
  #last = 0

  constructor(options: MemberLinksOptions) {
    this.#options = options
  }

  /** All, for their statistics and to close them. */
  get links(): RoomLink[] {
    return this.#all.map(({ link }) => link)
  }

  /** Makes the links that the worker lacks. `members`: by rank. What forms for an older roster is given up, at the other ends too. */
  async form(
    { ballot, rank, lives, links }: Unlinked,
    members: Assignment['members'],
  ): Promise<void> {
    const { client } = this.#options
    this.#ballot = ballot
    for (const one of this.#all.filter(({ isUp }) => !isUp)) this.#drop(one)
    const planned = links.map(({ peerRank, initiator }) => {
      const [own, peer] = [members[rank], members[peerRank]]
      const canRelay = client.hasRelay && canFallBack(own, peer)
      return { peerRank, initiator, kind: linkKind(own, peer)!, ...(canRelay && { canRelay }) }
    })
    const needsServers = client.isInside && planned.some(({ kind }) => kind === 'webrtc')
    // Logins at a TURN server last for minutes, runs longer.
    const iceServers = needsServers
      ? await client.askIceServers().catch(() => client.iceServers)
      : client.iceServers
    if (this.#ballot !== ballot) return
    const rtc = { iceServers: [...iceServers] }
    const assignment = { epoch: ballot, rank, members }
    for (const link of planned) this.#begin(assignment, link, lives[link.peerRank], rtc)
    const early = this.#early
    this.#early = []
    for (const signal of early) this.receive(signal)
  }

  /** `life`: of the other end. */
  #begin(
    assignment: Pick<Assignment, 'epoch' | 'rank' | 'members'>,
    planned: AssignedLink,
    life: string,
    rtc: RTCConfiguration,
  ): void {
    const { client, compute, ports } = this.#options
    const { epoch: ballot, members } = assignment
    const { peerRank } = planned
    const epoch = --this.#last
    const link = formRoomLink({
      ...{ client, assignment, link: planned, ports, rtc },
      send: (attempt, data) =>
        void compute.signal(ballot, peerRank, attempt, JSON.stringify(data)).catch(() => undefined),
      onTransport: (transport, lane) => compute.addLink(epoch, peerRank, transport, lane),
      onGone: () => void compute.memberIsDead(life).catch(() => undefined),
    })
    const forming: Forming = { ballot, peerRank, epoch, link, isUp: false }
    this.#all.push(forming)
    link.formed.then(
      (kind) => {
        if (!this.#all.includes(forming)) return
        log(1, 'room', () => `roster ${ballot}: linked to rank ${peerRank} by ${kind}`)
        forming.isUp = true
        const newcomers = [{ rank: peerRank, id: life, machine: machineKey(members[peerRank]) }]
        compute.admit({ epoch, newcomers }).catch(() => undefined)
      },
      () => {
        if (!this.#all.includes(forming)) return
        compute.notLinked(ballot, peerRank).catch(() => undefined)
        this.#drop(forming)
      },
    )
  }

  /** Takes what the other end of a link has sent. */
  receive(signal: Signal): void {
    const { ballot, from, attempt, data } = signal
    const forming = this.#all.find((one) => one.ballot === ballot && one.peerRank === from)
    if (forming) forming.link.receive(attempt, valueIn(data))
    else if (ballot >= this.#ballot) addEarly(this.#early, signal)
  }

  #drop(forming: Forming): void {
    const at = this.#all.indexOf(forming)
    if (at >= 0) this.#all.splice(at, 1)
    forming.link.close()
    this.#options.compute.dropLinks(forming.epoch).catch(() => undefined)
  }
}

/** Parses what another tab has sent; null, which is no signal, where it is no JSON. */
function valueIn(data: string): JsonValue {
  try {
    return JSON.parse(data)
  } catch {
    return null
  }
}
