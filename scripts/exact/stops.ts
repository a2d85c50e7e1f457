import type { TabEvent } from '../../node/train/tab-group.ts'
import { median } from '../../src/measure/median.ts'

/** What a change of ranks has cost. units: ms. */
export interface Stop {
  readonly isLoss: boolean
  /** After a loss: from the first word of it to the next step. For ranks that have come: beyond an ordinary step. */
  readonly ms: number
  /** What a step takes otherwise. */
  readonly ordinaryMs: number
  /** The most that is allowed. */
  readonly maxMs: number
}

/** After a loss. units: ms. */
const maxLossMs = 2000
/** Or that many ordinary steps: where other work takes the machine's time, all takes longer. */
const maxLossSteps = 10
/** For ranks that come: all ranks form another group, and the state is sent. units: ms. */
const maxJoinMs = 500
/** Or that many ordinary steps. */
const maxJoinSteps = 2
/** An ordinary step is the median of that many before the change or after it, whichever is longer: more tabs may share the same cores. */
export const ordinarySteps = 7

/** Finds in a run's events how long changes of its ranks hold it up. */
export class Stops {
  /** Between rank 0's steps. */
  readonly #stepMs: number[] = []
  /** By the index of the step that came after it. */
  readonly #changes: { readonly at: number; readonly lossMs: number | null }[] = []
  #steppedMs = Number.NaN
  #lostAtMs: number | null = null
  #isRegrouped = false

  /** Takes the loss from any rank: the one that reports steps may be the lost one. */
  take(event: TabEvent, nowMs: number): void {
    if (event.event === 'lost') this.#lostAtMs ??= nowMs
    if (event.rank !== 0) return
    if (event.event === 'regrouped') this.#isRegrouped = true
    if (event.event !== 'step') return
    if (this.#isRegrouped) {
      const lossMs = this.#lostAtMs === null ? null : nowMs - this.#lostAtMs
      this.#changes.push({ at: this.#stepMs.length, lossMs })
      this.#isRegrouped = false
      this.#lostAtMs = null
    }
    this.#stepMs.push(nowMs - this.#steppedMs)
    this.#steppedMs = nowMs
  }

  get all(): Stop[] {
    return this.#changes.map(({ at, lossMs }) => {
      const before = this.#stepMs.slice(Math.max(1, at - ordinarySteps), at)
      const after = this.#stepMs.slice(at + 1, at + 1 + ordinarySteps)
      const ordinaryMs = Math.max(...[before, after].filter(({ length }) => length > 0).map(median))
      const isLoss = lossMs !== null
      return {
        isLoss,
        ms: lossMs ?? this.#stepMs[at] - ordinaryMs,
        ordinaryMs,
        maxMs: isLoss
          ? Math.max(maxLossMs, maxLossSteps * ordinaryMs)
          : Math.max(maxJoinMs, maxJoinSteps * ordinaryMs),
      }
    })
  }
}
