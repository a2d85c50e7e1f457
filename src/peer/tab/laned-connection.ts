import * as v from 'valibot'
import { type Env, systemEnv } from '../../util/env.ts'
import { PeerError } from '../../util/errors.ts'
import type { JsonValue } from '../../util/json-value.ts'
import { log } from '../../util/log.ts'
import { switchValue } from '../../util/switches.ts'
import { wayLength } from './round-trip.ts'
import { WebRtcConnection, type WebRtcOptions, type WebRtcStats } from './webrtc.ts'

/**
 * How many lanes a round trip of at least `fromMs` is worth. Two tabs of one machine take less than 1 ms, one network 1 to 3. Measured over 22 ms: 4
 * lanes carried 2.5 times what one did; over 84 ms: 4 carried 2.7 times, 8 carried 6.2 times as much (`npm run bench -- lanes`).
 */
const lanesByRoundTrip = [
  { fromMs: 40, lanes: 8 },
  { fromMs: 5, lanes: 4 },
] as const

/** How many lanes to make where a message and its answer take so long. */
export const lanesFor = (roundTripMs: number): number =>
  lanesByRoundTrip.find(({ fromMs }) => roundTripMs >= fromMs)?.lanes ?? 1

/** Within this time a lane is up, or done without. units: ms. */
const laneMs = 5_000

/** So long the answering side waits for the word of how many lanes: a busy page measures late, and one that says nothing is frozen. units: ms. */
const wordMs = 15_000

/** Beside a connection's own signals: how many lanes there shall be, and the signals of those from the second on. */
const laneSignalsSchema = v.union([
  v.strictObject({ lanes: v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(8)) }),
  v.strictObject({
    lane: v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(7)),
    signals: v.unknown(),
  }),
])

export interface LanedConnectionOptions extends Omit<WebRtcOptions, 'onChannel'> {
  /**
   * Called with each lane's bulk channel in the task that made it. Lane 0 comes first, and again for each attempt: the newest counts. The
   * others come once each, before any channel carries a message.
   */
  onChannel: (channel: RTCDataChannel, lane: number) => void
  /** For the side that offers. Default: by the round trip. */
  lanes?: number
}

/** Traffic of all lanes, and the first one's path. */
export interface LanedStats extends WebRtcStats {
  /** Connections that are up. */
  lanes: number
}

/**
 * A connection between two tabs, of several WebRTC connections where the way between them is long: `start`, feed `receive`, await
 * `connected`, and `close`.
 *
 * The side that offers measures the round trip of the first connection and says how many lanes there shall be (the switch `lanes` settles
 * it without a measurement). Lanes that do not come up in time are done without.
 */
export class LanedConnection {
  /** Resolves when the first lane is up, and each of the others or done without. errors: as WebRtcConnection's. */
  readonly connected: Promise<void>
  readonly #options: LanedConnectionOptions
  readonly #env: Env
  /** By number; those that did not come up are taken out. */
  readonly #lanes = new Map<number, WebRtcConnection>()
  #laneCount = 0
  /** The first lane's. */
  #attempt = 1
  /** Settled on the answering side when it knows how many lanes there shall be, or that the other side will not say. */
  #decide!: { resolve: (count: number) => void; reject: (error: PeerError) => void }
  readonly #decided = new Promise<number>((resolve, reject) => {
    this.#decide = { resolve, reject }
  })

  constructor(options: LanedConnectionOptions) {
    this.#options = options
    this.#env = options.env ?? systemEnv
    const first = new WebRtcConnection({
      ...options,
      onChannel: (channel) => options.onChannel(channel, 0),
      onSignal: (attempt, signals) => {
        this.#attempt = attempt
        options.onSignal(attempt, signals)
      },
      onDown: (error) => {
        this.#decide.reject(error)
        options.onDown(error)
      },
    })
    this.#decided.catch(() => undefined)
    this.#lanes.set(0, first)
    this.connected = this.#connect(first)
    this.connected.catch(() => undefined)
  }

  start(): void {
    this.#lanes.get(0)!.start()
  }

  /** Takes what the other side's `onSignal` gave. */
  receive(attempt: number, signals: unknown): void {
    const parsed = v.safeParse(laneSignalsSchema, signals)
    if (!parsed.success) this.#lanes.get(0)!.receive(attempt, signals)
    else if ('lanes' in parsed.output) {
      if (this.#options.initiator || this.#laneCount > 0) return
      this.#makeLanes(parsed.output.lanes)
      this.#decide.resolve(parsed.output.lanes)
    } else this.#lanes.get(parsed.output.lane)?.receive(1, parsed.output.signals)
  }

  /** Of the first lane; as WebRtcConnection's. */
  roundTrips(count?: number): Promise<number[]> {
    return this.#lanes.get(0)!.roundTrips(count)
  }

  /** Counts of all lanes and the path of the first; the last known ones after the end. */
  async stats(): Promise<LanedStats> {
    const all = await Promise.all([...this.#lanes.values()].map((lane) => lane.stats()))
    const sum = (field: 'bytesSent' | 'bytesReceived' | 'messagesSent' | 'messagesReceived') =>
      all.reduce((total, stats) => total + stats[field], 0)
    return {
      ...all[0]!,
      bytesSent: sum('bytesSent'),
      bytesReceived: sum('bytesReceived'),
      messagesSent: sum('messagesSent'),
      messagesReceived: sum('messagesReceived'),
      packetsDiscardedOnSend: all.reduce((total, one) => total + one.packetsDiscardedOnSend, 0),
      lanes: all.length,
    }
  }

  /** Ends all lanes; idempotent. */
  close(): void {
    this.#decide.reject(
      new PeerError(
        'peer.lost',
        `link to ${this.#options.peerName}: closed on this side. Connect again.`,
      ),
    )
    for (const lane of this.#lanes.values()) lane.close()
  }

  async #connect(first: WebRtcConnection): Promise<void> {
    await first.connected
    const { initiator, peerName, onSignal } = this.#options
    let count: number
    if (initiator) {
      const given = this.#options.lanes ?? switchValue('lanes')
      const roundTripMs =
        given === null
          ? await wayLength(
              () => first.roundTrips(),
              (ms) => lanesFor(ms) === 1,
              this.#env,
            )
          : null
      count = given ?? lanesFor(roundTripMs!)
      log(1, 'link', () => {
        const why = roundTripMs === null ? 'as set' : `round trip ${roundTripMs.toFixed(1)} ms`
        return `to ${peerName}: ${count} ${count === 1 ? 'lane' : 'lanes'} (${why})`
      })
      onSignal(this.#attempt, { lanes: count })
      this.#makeLanes(count)
    } else {
      const cancel = this.#env.after(wordMs, () =>
        this.#decide.reject(
          new PeerError(
            'peer.unreachable',
            `link to ${peerName}: the other tab connected, but sent no number of lanes within ${wordMs} ms. Is it frozen?`,
          ),
        ),
      )
      count = await this.#decided.finally(cancel)
    }
    const others = [...this.#lanes].filter(([number]) => number > 0)
    await Promise.all(
      others.map(([number, lane]) =>
        lane.connected.catch(() => {
          this.#lanes.delete(number)
        }),
      ),
    )
  }

  #makeLanes(count: number): void {
    this.#laneCount = count
    const { onChannel, onSignal } = this.#options
    for (let number = 1; number < count; number++) {
      const lane = new WebRtcConnection({
        ...this.#options,
        attemptTimeoutsMs: [laneMs],
        onChannel: (channel) => onChannel(channel, number),
        onSignal: (_, signals) => onSignal(this.#attempt, { lane: number, signals } as JsonValue),
      })
      this.#lanes.set(number, lane)
      lane.start()
    }
  }
}
