import type { StepProgram } from '../../graph/plan/step-program.ts'
import type { CollectiveSpan } from '../../peer/group/group.ts'
import type { TimelineEntry } from './run-events.ts'
import type { WatchedStep } from './step-sample.ts'

/** A step after the first ones, which still settle. */
const watchedStep = 5
/** Collectives of a step are buckets; those above are of other use. */
const maxBuckets = 60_000

/** Times of events in the steps of a run that are watched: which buckets and frames moved while backward still ran. */
export class StepTimeline {
  /** The early step that the run's result has. */
  #early: WatchedStep | undefined
  #watched: { step: number; marks: TimelineEntry[]; collectives: CollectiveSpan[] } | undefined
  /** Of the watched step's collectives, while it is under way. */
  #sequence: number | undefined

  /** Called before each step; takes down an early one, and those that `isWanted`. */
  begin(program: StepProgram, step: number, totalSteps: number, isWanted = false): void {
    const isEarly = step === Math.min(watchedStep, totalSteps)
    if (!isEarly && !isWanted) {
      this.#sequence = undefined
      program.onMark = undefined
      return
    }
    this.#sequence = program.prepared.trace.exchange?.nextSequence
    const marks = [{ name: 'step begins', atMs: performance.now() }]
    this.#watched = { step, marks, collectives: [] }
    if (isEarly) this.#early = this.#watched
    program.onMark = (name, atMs) => marks.push({ name, atMs })
  }

  /** Takes the group's report of a collective, where it is of the step that is watched. */
  onSpan(span: CollectiveSpan): void {
    if (span.sequence !== this.#sequence || span.bucket > maxBuckets) return
    this.#watched?.collectives.push(span)
  }

  /** The newest record. */
  get watched(): WatchedStep | undefined {
    return this.#watched
  }

  /** The early step in the order of time; what never happened is left out. */
  get entries(): TimelineEntry[] {
    const { marks, collectives } = this.#early ?? { marks: [], collectives: [] }
    const moves = collectives.flatMap((span) => {
      const name = `bucket ${span.bucket} ${span.operation}`
      return [
        { name: `${name}: launched`, atMs: span.launchedMs },
        { name: `${name}: first frame sent`, atMs: span.firstSentMs },
        { name: `${name}: last frame received`, atMs: span.lastReceivedMs },
      ]
    })
    return [...marks, ...moves]
      .filter(({ atMs }) => !Number.isNaN(atMs))
      .sort((a, b) => a.atMs - b.atMs)
  }
}
