import * as v from 'valibot'
import type { Env } from '../../util/env.ts'
import { PeerError } from '../../util/errors.ts'
import type { JsonValue } from '../../util/json-value.ts'
import { ringEdges } from '../room/edges.ts'
import type { Lobby, LobbyMember, ToNext } from '../room/messages.ts'
import { toUs } from '../room/microseconds.ts'

/**
 * The links of a member to its neighbours in the ring while no run is on: by them everyone sees who is how far from whom, and who cannot be
 * reached, before Start. Nothing but small questions and answers travels there.
 *
 * One link for each edge of the ring. The member before it calls, measures and reports (`Measured.toNext`); the one behind it answers. Links follow
 * the room: who is a neighbour no more, and everyone once a run begins, closes its own. Each call has a number, so that nothing of an earlier one
 * is taken for a later one's.
 */

/** From the last change of who is behind a member until it calls: those who come at once have come by then. units: ms. */
const settleMs = 1_500
const measureEveryMs = 5_000
/** Right after a call, and each time later. */
const firstTrips = 5
const laterTrips = 3
/** Number of trips whose median is reported. */
const keptTrips = 15
/** A neighbour that does not answer a question for this long counts as away: its tab is frozen. units: ms. */
const answerMs = 10_000
/** Time until the next call where there is no way; twice as much each time, up to `againMaxMs`. units: ms. */
const againMs = 15_000
const againMaxMs = 120_000

/** One side of a link between two tabs. */
export interface LobbyWay {
  /** Resolves when the other side answers. errors: no way, and why. */
  readonly connected: Promise<void>
  /** One after the other; for the side that calls. errors: the link has ended. units: ms. */
  roundTrips(count: number): Promise<readonly number[]>
  /** Takes what the other side's `say` gave. */
  receive(said: unknown): void
  close(): void
}

export interface WayOptions {
  readonly isCalling: boolean
  /** Names this link on both sides, and no other. */
  readonly key: string
  /** Brings something to the other side's `receive`. */
  readonly say: (said: JsonValue) => void
}

export interface LobbyLinksOptions {
  readonly env: Pick<Env, 'after'>
  readonly ownId: string
  /** Null where the two could not be linked directly in a run either. */
  readonly makeWay: (peer: LobbyMember, options: WayOptions) => LobbyWay | null
  /** To a neighbour, sealed. */
  readonly send: (to: string, data: JsonValue) => void
  /** Undefined: nothing is known. */
  readonly report: (toNext: ToNext | undefined) => void
}

const wordSchema = v.union([
  v.strictObject({ call: v.pipe(v.number(), v.safeInteger(), v.minValue(1)), said: v.unknown() }),
  v.strictObject({
    call: v.pipe(v.number(), v.safeInteger(), v.minValue(1)),
    isOver: v.literal(true),
  }),
])
type Word = v.InferOutput<typeof wordSchema>

export class LobbyLinks {
  readonly #options: LobbyLinksOptions
  #next: Calling | undefined
  #previous: Answering | undefined

  constructor(options: LobbyLinksOptions) {
    this.#options = options
  }

  /** Takes the room as the server reports it. */
  roomIs({ state, members }: Pick<Lobby, 'state' | 'members'>): void {
    const isOn = state === 'assigned' || state === 'running'
    const own = members.findIndex(({ id }) => id === this.#options.ownId)
    const edges = isOn ? [] : ringEdges(members.length)
    // Who measures nothing of itself, as a tab of the command line, does not answer either.
    const at = (index = -1) => (members[index]?.measured ? members[index] : undefined)
    const next = at(edges.find(([from]) => from === own)?.[1])
    const previous = at(edges.find(([, to]) => to === own)?.[0])
    if (next?.id !== this.#next?.peer.id) {
      this.#next?.close()
      this.#next = next && new Calling(this.#options, next)
      this.#options.report(undefined)
    }
    if (previous?.id !== this.#previous?.peer.id) {
      this.#previous?.close()
      this.#previous = previous && new Answering(this.#options, previous)
    }
  }

  /** Takes a neighbour's message. errors: `peer.protocol` for anything else. */
  receive(from: string, data: unknown): void {
    const side = [this.#next, this.#previous].find((one) => one?.peer.id === from)
    if (!side) return // it crossed a change of the room
    const parsed = v.safeParse(wordSchema, data)
    if (!parsed.success)
      throw new PeerError(
        'peer.protocol',
        `lobby: ${side.peer.name} sent a message that is neither a call nor an answer (${parsed.issues[0].message}). Reload both pages.`,
      )
    side.receive(parsed.output)
  }

  /** A run begins, or the member leaves. */
  close(): void {
    this.#next?.close()
    this.#previous?.close()
    this.#next = this.#previous = undefined
  }
}

/** The side of the member behind the link. */
class Answering {
  readonly peer: LobbyMember
  readonly #options: LobbyLinksOptions
  #call = 0
  #way: LobbyWay | null = null

  constructor(options: LobbyLinksOptions, peer: LobbyMember) {
    this.#options = options
    this.peer = peer
  }

  receive(word: Word): void {
    const { call } = word
    if (call > this.#call) this.#answer(call)
    if (call < this.#call) return
    if ('said' in word) this.#way?.receive(word.said)
  }

  #answer(call: number): void {
    this.#way?.close()
    this.#call = call
    const { makeWay, send, ownId } = this.#options
    const { id } = this.peer
    this.#way = makeWay(this.peer, {
      isCalling: false,
      key: `lobby ${id} ${ownId} ${call}`,
      say: (said) => send(id, { call, said }),
    })
    // The side that calls would wait for what this one knows.
    this.#way?.connected.catch(() => {
      if (this.#call === call && this.#way) send(id, { call, isOver: true })
    })
  }

  close(): void {
    const way = this.#way
    this.#way = null
    way?.close()
  }
}

/** The side of the member before the link. */
class Calling {
  readonly peer: LobbyMember
  readonly #options: LobbyLinksOptions
  #call = 0
  #way: LobbyWay | null = null
  #tripsMs: number[] = []
  #failures = 0
  /** True if the other side has answered this call, and any at all. */
  #isHeard = false
  #wasHeard = true
  #cancel: () => void

  constructor(options: LobbyLinksOptions, peer: LobbyMember) {
    this.#options = options
    this.peer = peer
    this.#cancel = options.env.after(settleMs, () => this.#begin())
  }

  receive(word: Word): void {
    if (word.call !== this.#call) return
    this.#isHeard = true
    if ('said' in word) this.#way?.receive(word.said)
    else this.#failed(word.call)
  }

  #begin(): void {
    const { makeWay, send, ownId } = this.#options
    const { id } = this.peer
    const call = ++this.#call
    this.#tripsMs = []
    this.#isHeard = false
    const way = makeWay(this.peer, {
      isCalling: true,
      key: `lobby ${ownId} ${id} ${call}`,
      say: (said) => send(id, { call, said }),
    })
    this.#way = way
    way?.connected.then(
      () => {
        if (this.#call === call) this.#isHeard = true
        void this.#measure(way, call, firstTrips)
      },
      () => this.#failed(call),
    )
  }

  async #measure(way: LobbyWay, call: number, count: number): Promise<void> {
    if (this.#call !== call) return
    const { env, report } = this.#options
    this.#cancel = env.after(answerMs, () => this.#failed(call))
    let trips: readonly number[]
    try {
      trips = await way.roundTrips(count)
    } catch {
      this.#lost(call)
      return
    }
    if (this.#call !== call) return
    this.#cancel()
    this.#cancel = env.after(measureEveryMs, () => void this.#measure(way, call, laterTrips))
    this.#failures = 0
    this.#tripsMs = [...this.#tripsMs, ...trips].slice(-keptTrips)
    report({ id: this.peer.id, us: medianUs(this.#tripsMs) })
  }

  /** There is no way: another call comes later. One that nobody heard may have come too early for the other page: it is made again at once. */
  #failed(call: number): void {
    if (this.#call !== call) return
    this.#drop()
    const isTooEarly = !this.#isHeard && this.#wasHeard
    this.#wasHeard = this.#isHeard
    if (isTooEarly) {
      this.#cancel = this.#options.env.after(settleMs, () => this.#begin())
      return
    }
    const waitMs = Math.min(againMaxMs, againMs * 2 ** this.#failures++)
    this.#cancel = this.#options.env.after(waitMs, () => this.#begin())
    this.#options.report({ id: this.peer.id, us: null })
  }

  /** Takes the end of a link that was up: its tab has gone, which the room will report, or its network has changed. */
  #lost(call: number): void {
    if (this.#call !== call) return
    this.#drop()
    this.#cancel = this.#options.env.after(settleMs, () => this.#begin())
    this.#options.report(undefined)
  }

  /** Drops this call: its results from now on mean nothing. */
  #drop(): void {
    this.#cancel()
    this.#call++
    this.#way?.close()
    this.#way = null
  }

  close(): void {
    this.#drop()
  }
}

function medianUs(tripsMs: readonly number[]): number {
  const sorted = [...tripsMs].sort((a, b) => a - b)
  return toUs(sorted[Math.floor((sorted.length - 1) / 2)]!)
}
