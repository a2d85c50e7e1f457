import type { StepProgram } from '../graph/step-program.ts'
import type { CollectiveSpan } from '../peer/group.ts'
import type { TimelineEntry } from './run.ts'

/** A step after the first ones, which still settle. */
const watchedStep = 5
/** Collectives of a step are buckets; those above are of other use. */
const mostBuckets = 60_000

/** What happened when in one step of a run: which buckets and frames moved while backward still ran. */
export class StepTimeline {
  readonly #entries: TimelineEntry[] = []
  /** Of the watched step's collectives, while it is under way. */
  #sequence: number | undefined

  /** Called before each step; takes down the one that is watched. */
  begin(program: StepProgram, step: number, totalSteps: number): void {
    if (step !== Math.min(watchedStep, totalSteps)) {
      this.#sequence = undefined
      program.onMark = undefined
      return
    }
    this.#sequence = program.prepared.trace.exchange?.nextSequence
    this.#entries.length = 0
    this.#entries.push({ name: 'step begins', atMs: performance.now() })
    program.onMark = (name, atMs) => this.#entries.push({ name, atMs })
  }

  /** Takes the group's report of a collective, where it is of the step that is watched. */
  onSpan(span: CollectiveSpan): void {
    if (span.sequence !== this.#sequence || span.bucket > mostBuckets) return
    const name = `bucket ${span.bucket} ${span.operation}`
    this.#entries.push(
      { name: `${name}: launched`, atMs: span.launchedMs },
      { name: `${name}: first frame sent`, atMs: span.firstSentMs },
      { name: `${name}: last frame received`, atMs: span.lastReceivedMs },
    )
  }

  /** In the order of time; what never happened is left out. */
  get entries(): TimelineEntry[] {
    return this.#entries.filter(({ atMs }) => !Number.isNaN(atMs)).sort((a, b) => a.atMs - b.atMs)
  }
}
