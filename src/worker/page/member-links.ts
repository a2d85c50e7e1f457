import { addEarly } from '../../peer/room/early-signals.ts'
import type { Assignment, JsonValue } from '../../peer/room/messages.ts'
import { canFallBack, linkKind, machineKey } from '../../peer/room/topology.ts'
import type { LocalPorts } from '../../peer/tab/local-ports.ts'
import type { SignalClient, SignalEvents } from '../../peer/tab/signal.ts'
import { tell } from '../../util/log.ts'
import type { ComputeApi, RunEvent } from '../api.ts'
import { formLinks, type LinkSignals, type RingLinks } from './connect.ts'

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
  readonly ring: RingLinks
  readonly receive: (attempt: number, data: JsonValue) => void
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
  get rings(): RingLinks[] {
    return this.#all.map(({ ring }) => ring)
  }

  /** Makes the links that the worker lacks. `members`: by rank. What forms for an older roster is given up, at the other ends too. */
  async form(
    { ballot, rank, lives, links }: Unlinked,
    members: Assignment['members'],
  ): Promise<void> {
    const { client } = this.#options
    this.#ballot = ballot
    for (const one of this.#all.filter(({ isUp }) => !isUp)) this.#drop(one)
    const ways = links.map(({ peerRank, initiator }) => {
      const [own, peer] = [members[rank], members[peerRank]]
      const canRelay = client.hasRelay && canFallBack(own, peer)
      return { peerRank, initiator, kind: linkKind(own, peer)!, ...(canRelay && { canRelay }) }
    })
    const needsServers = client.isInside && ways.some(({ kind }) => kind === 'webrtc')
    // Logins at a TURN server last for minutes, runs longer.
    const iceServers = needsServers
      ? await client.askIceServers().catch(() => client.iceServers)
      : client.iceServers
    if (this.#ballot !== ballot) return
    for (const way of ways) {
      const assignment = { epoch: ballot, rank, worldSize: members.length, members, links: [way] }
      this.#all.push(this.#begin(assignment, lives[way.peerRank], iceServers))
    }
    const early = this.#early
    this.#early = []
    for (const signal of early) this.receive(signal)
  }

  #begin(assignment: Assignment, life: string, iceServers: LinkSignals['iceServers']): Forming {
    const { client, compute, ports } = this.#options
    const { epoch: ballot, members, links } = assignment
    const [{ peerRank }] = links
    const epoch = --this.#last
    let hear: (attempt: number, data: JsonValue) => void = () => undefined
    const signals: LinkSignals = {
      iceServers,
      address: client.address,
      token: client.token,
      signal: (_, to, attempt, data) =>
        void compute.signal(ballot, to, attempt, JSON.stringify(data)).catch(() => undefined),
      on: (event, listener) => {
        const hearSignal = listener as (signal: SignalEvents['signal']) => void
        if (event === 'signal')
          hear = (attempt, data) => hearSignal({ epoch: ballot, from: peerRank, attempt, data })
        return () => undefined
      },
      ready: () => undefined,
      linkDown: () => {
        if (forming.isUp) return
        compute.notLinked(ballot, peerRank).catch(() => undefined)
        this.#drop(forming)
      },
    }
    const ring = formLinks({
      client: signals,
      assignment,
      ports,
      isElastic: true,
      addLink: (_, peer, transport, lane) => compute.addLink(epoch, peer, transport, lane),
      onLinked: (_, kind) => {
        tell(1, 'room', () => `roster ${ballot}: linked to rank ${peerRank} by ${kind}`)
        forming.isUp = true
        const newcomers = [{ rank: peerRank, id: life, machine: machineKey(members[peerRank]) }]
        compute.admit({ epoch, newcomers }).catch(() => undefined)
      },
      onGone: () => void compute.memberIsDead(life).catch(() => undefined),
    })
    ring.connected.catch(() => undefined)
    const receive = (attempt: number, data: JsonValue) => hear(attempt, data)
    const forming: Forming = { ballot, peerRank, epoch, ring, receive, isUp: false }
    return forming
  }

  /** Takes what the other end of a link has sent. */
  receive(signal: Signal): void {
    const { ballot, from, attempt, data } = signal
    const forming = this.#all.find((one) => one.ballot === ballot && one.peerRank === from)
    if (forming) forming.receive(attempt, valueIn(data))
    else if (ballot >= this.#ballot) addEarly(this.#early, signal)
  }

  #drop(forming: Forming): void {
    const at = this.#all.indexOf(forming)
    if (at >= 0) this.#all.splice(at, 1)
    forming.ring.close()
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
