import { memberOf } from '../../src/peer/room/lives.ts'
import type { StepSample } from '../../src/trainer/watch/step-sample.ts'
import { type LinkUse, linkUse } from '../../src/ui/live/links.ts'
import { messageOf, TabringError } from '../../src/util/errors.ts'
import { log } from '../../src/util/log.ts'
import type { RunEvent } from '../../src/worker/api.ts'
import { LocalRanks } from '../../src/worker/page/local-ranks.ts'
import { parseTrainConfig } from '../experiments.ts'
import { type Field, type Marks, marksOfAnswer } from '../playground/marks.ts'
import type { Shape } from '../playground/meta.ts'
import { onCores, startWorker } from '../start-worker.ts'

/** A rank as the first screen draws it. */
export interface Seat {
  /** Kept while ranks leave and join: `A`, `B`, … */
  readonly name: string
  /** Its points among the others; null until it trains. */
  readonly marks: Marks | null
  readonly isGone: boolean
}

/** What the first screen shows of its training. */
export interface FirstRunView {
  readonly shape: Shape
  /** By rank; one that was lost stays until the others have closed the ring. */
  readonly seats: readonly Seat[]
  readonly step: number
  readonly totalSteps: number
  readonly field: Field | null
  /** By rank: the link to the next. */
  readonly uses: readonly LinkUse[]
  /** What happens now. */
  readonly words: string
  readonly isPaused: boolean
  /** It cannot train here. */
  readonly hasFailed: boolean
}

const ranks = 3
/** Steps at which a rank is lost and another joins, of all steps of one shape: some 7, 12 and 20 s. */
const lostAt = 200
const joinsAt = 340
const epochs = 120
const stepsPerSec = 30
/** Between two pictures of the boundary. units: ms. */
const pictureMs = 100
/** Between two shapes, to look at what was learned. units: ms. */
const restMs = 3000
/** A lost rank is shown at least so long. units: ms. */
const lostMs = 1000
const side = 64
/** In the order in which they are trained, again and again. */
const shapes: readonly Shape[] = ['spiral', 'circles', 'moons', 'xor']

export const notBegun: FirstRunView = {
  shape: shapes[0],
  seats: Array.from({ length: ranks }, (_, at) => seatOf(nameOf(at))),
  step: 0,
  totalSteps: 0,
  field: null,
  uses: [],
  words: 'Three ranks of this tab are about to train.',
  isPaused: false,
  hasFailed: false,
}

/**
 * The training that runs on the first screen: real ranks of this tab, each with a sector of the points, on the CPU, so that the tab's own rank has the
 * GPU for itself. One is lost and another joins, as in a room.
 */
export class FirstRun {
  readonly #ranks: LocalRanks
  readonly #baseUrl: string
  readonly #onChange: () => void
  #view = notBegun
  /** Members by rank. */
  #members: readonly string[] = []
  #ballot = 0
  #samples: (readonly StepSample[])[] = []
  /** Each rank's points are known since the last change of ranks. */
  #isSliced = false
  #hasLost = false
  #hasJoined = false
  #lostAtMs = Number.NEGATIVE_INFINITY
  #pictureAtMs = 0
  #isAsking = false
  #isClosed = false

  /** Trains shape after shape, until it is closed or fails. `onChange` is called when `view` is another. */
  constructor(baseUrl: string, onChange: () => void) {
    this.#baseUrl = baseUrl
    this.#onChange = onChange
    this.#ranks = new LocalRanks(startWorker, onCores())
    void this.#trainAll()
  }

  get view(): FirstRunView {
    return this.#view
  }

  async #trainAll(): Promise<void> {
    try {
      for (let at = 0; !this.#isClosed; at = (at + 1) % shapes.length) {
        await this.#train(shapes[at])
        await new Promise((resolve) => setTimeout(resolve, restMs))
      }
    } catch (thrown) {
      if (this.#isClosed) return
      log(1, 'first screen', () => messageOf(thrown))
      const cannot = thrown instanceof TabringError && thrown.code === 'gpu.unavailable'
      const words = cannot
        ? 'Three ranks would train here, but this browser cannot compute in WebAssembly.'
        : 'The three ranks have ended. Reload the page to see them again.'
      this.#show({ hasFailed: true, words })
    }
  }

  /** Between two shapes it has no effect before the next one. */
  pause(isPaused: boolean): void {
    if (isPaused === this.#view.isPaused) return
    this.#show({ isPaused })
    const first = this.#ranks.at(this.#members[0])
    const sent = isPaused ? first?.pause() : first?.goOn()
    sent?.catch(() => undefined)
  }

  close(): void {
    this.#isClosed = true
    this.#ranks.close()
  }

  async #train(shape: Shape): Promise<void> {
    await this.#ranks.open(ranks)
    this.#members = this.#ranks.members
    this.#ballot = 0
    this.#samples = []
    this.#isSliced = false
    this.#hasLost = false
    this.#hasJoined = false
    const seats = this.#members.map((member) => seatOf(seatName(member)))
    const names = seats.map(({ name }) => name)
    this.#show({
      ...{ shape, seats, step: 0, field: null, uses: [] },
      words: `${listOf(names)} are three ranks in this tab. Each learns from a third of the points, and gradients travel around the ring, so all have one network.`,
    })
    const config = parseTrainConfig({
      ...{ demo: 'playground', data: shape, partition: 'own-slice' },
      ...{ epochs, maxStepsPerSec: stepsPerSec },
    })
    await this.#ranks.train(ranks, config, this.#baseUrl, (event) => this.#take(event), true)
    await this.#picture(true)
  }

  #take(event: RunEvent): void {
    if (this.#isClosed) return
    if (event.event === 'roster') this.#regroup(event)
    if (event.rank !== 0) return
    if (event.event === 'samples') {
      this.#samples = [...this.#samples.slice(-1), event.samples]
      const about = { sampledSteps: this.#samples, worldSize: this.#members.length }
      this.#show({ uses: linkUse({ ...about, config: null }) })
    } else if (event.event === 'evaluation' && event.step === this.#view.totalSteps) {
      const percent = Math.round(100 * event.value)
      this.#show({ words: `Learned: right on ${percent} % of points that no rank has seen.` })
    } else if (event.event === 'step') this.#step(event.step, event.totalSteps)
  }

  #step(step: number, totalSteps: number): void {
    this.#show({ step, totalSteps })
    // It was paused before it had begun.
    if (this.#view.isPaused && step === 1) this.#ranks.at(this.#members[0])?.pause()
    if (step >= lostAt && !this.#hasLost) {
      this.#hasLost = true
      this.#lose(this.#members[1])
    } else if (step >= joinsAt && !this.#hasJoined) {
      this.#hasJoined = true
      this.#ranks.join().catch(() => undefined)
    }
    void this.#picture()
  }

  #lose(member: string): void {
    this.#lostAtMs = performance.now()
    const name = seatName(member)
    this.#show({
      seats: this.#view.seats.map((seat) => ({
        ...seat,
        isGone: seat.isGone || seat.name === name,
      })),
      words: `${name} is lost, as when somebody closes a tab.`,
    })
    this.#ranks.lose(member)
  }

  /** The others have decided who the ranks are: each gets another share of the points. */
  #regroup({ ballot, members: lives }: Extract<RunEvent, { event: 'roster' }>): void {
    if (ballot <= this.#ballot) return
    this.#ballot = ballot
    const members = lives.map(memberOf)
    const before = this.#members
    this.#members = members
    this.#samples = []
    const showMs = this.#lostAtMs + lostMs - performance.now()
    setTimeout(() => {
      if (this.#ballot === ballot && !this.#isClosed) this.#showRing(members, before)
    }, showMs)
  }

  #showRing(members: readonly string[], before: readonly string[]): void {
    const joined = members.filter((member) => !before.includes(member)).map(seatName)
    const names = members.map(seatName)
    const others = listOf(names.filter((name) => !joined.includes(name)))
    this.#show({
      seats: names.map(
        (name) => this.#view.seats.find((seat) => seat.name === name) ?? seatOf(name),
      ),
      uses: [],
      words:
        joined.length > 0
          ? `${listOf(joined)} has joined, got the network from ${others}, and takes a third.`
          : `The ring has closed: ${others} share the points, and continue.`,
    })
    this.#isSliced = false
  }

  /** Asks for the boundary, and after a change of ranks for each one's points. */
  async #picture(isLast = false): Promise<void> {
    const now = performance.now()
    if (this.#isAsking || (now - this.#pictureAtMs < pictureMs && !isLast)) return
    this.#isAsking = true
    this.#pictureAtMs = now
    try {
      if (!this.#isSliced) await this.#slice()
      const answer = await this.#ranks.at(this.#members[0])?.query('boundary', { side })
      if (answer) this.#show({ field: answer as unknown as Field })
    } catch {
      // Ranks come and go: the next step asks again.
    } finally {
      this.#isAsking = false
    }
  }

  async #slice(): Promise<void> {
    const ballot = this.#ballot
    const members = [...this.#members]
    const answers = await Promise.all(
      members.map((member) => this.#ranks.at(member)?.query('points')),
    )
    if (ballot !== this.#ballot) return
    this.#isSliced = true
    this.#show({
      seats: this.#view.seats.map((seat) => {
        const answer = answers[members.findIndex((member) => seatName(member) === seat.name)]
        return answer ? { ...seat, marks: { ...marksOfAnswer(answer), test: null } } : seat
      }),
    })
  }

  #show(change: Partial<FirstRunView>): void {
    this.#view = { ...this.#view, ...change }
    this.#onChange()
  }
}

function seatOf(name: string): Seat {
  return { name, marks: null, isGone: false }
}

const seatName = (member: string) => nameOf(Number(member))

/** `A` for member 0, and so on; after `Z` comes `A` again. */
function nameOf(at: number): string {
  return String.fromCharCode(65 + (at % 26))
}

const listOf = (names: readonly string[]) =>
  names.length < 2 ? names.join() : `${names.slice(0, -1).join(', ')} and ${names.at(-1)}`
