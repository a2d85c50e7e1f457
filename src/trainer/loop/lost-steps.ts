import { shareFindings } from '../../graph/inside/anomaly-report.ts'
import { gatherJson } from '../../peer/group/gather-json.ts'
import type { ProcessGroup } from '../../peer/group/group.ts'
import { TabringError } from '../../util/errors.ts'
import { formatRanks } from '../../util/format-ranks.ts'
import { isText } from '../../util/kind-of.ts'
import type { RunEvent } from '../watch/run-events.ts'
import { evictionForValues, maxRepeatedFaults, RepeatedFaults } from './eviction.ts'

/** Ranks whose values stop being finite in a step that the others can leave out. */
export interface LostStep {
  readonly ranks: readonly number[]
  /** Their findings. */
  readonly text: string
}

export interface LostStepsOptions {
  readonly onEvent: (event: RunEvent) => void
  /** The run continues without ranks that are evicted. */
  readonly isElastic?: boolean
}

/**
 * Handles steps whose values are not finite. The ranks go back, look at the step op by op, leave it out where at most half of them are to
 * blame, and part from a rank that is to blame again and again.
 *
 * It lasts over the attempts of a run.
 */
export class LostSteps {
  /** The step whose loss was not finite, until its cause has been looked for; ranks settle it among them. */
  suspect = 0
  readonly #options: LostStepsOptions
  /** The step that was looked at, op by op; 0 for none. */
  #examined = 0
  #blamed: (LostStep & { readonly step: number }) | undefined
  #leftOutAt = 0
  readonly #faultCounts = new RepeatedFaults()
  /** Ranks whose gradients were not finite in the step under way, and did not count. */
  readonly #notFinite = new Set<number>()

  constructor(options: LostStepsOptions) {
    this.#options = options
  }

  /**
   * The step after which the run begins again to look at the suspect one and at the step before, since a gradient that is not finite shows in the
   * next loss; undefined where they have been looked at.
   */
  get goesBackTo(): number | undefined {
    const { suspect } = this
    if (this.#blamed) return Math.max(this.#blamed.step - 1, this.#leftOutAt)
    return this.#examined === suspect ? undefined : Math.max(suspect - 2, this.#leftOutAt)
  }

  /** Tells whether it is the suspect step or the one before, which may hide the cause. */
  isSuspect(step: number): boolean {
    return step === this.suspect || step + 1 === this.suspect
  }

  /** Tells whether `find` must be asked before the step. */
  mayLose(step: number): boolean {
    return this.isSuspect(step) || this.#blamed !== undefined
  }

  /** The error of a step whose loss is not finite. */
  errorOf(step: number, loss: number, hasPeers: boolean): TabringError {
    return lossNotFinite(step, loss, this.#examined === step && hasPeers)
  }

  /**
   * After an evaluation of all ranks by the run's last step, whose gradients show in no later loss. Where the samples themselves are to blame a
   * look finds nothing in this step.
   *
   * errors: `train.nan` for a loss that is not finite, once.
   */
  checkLast(step: number, loss: number): void {
    if (Number.isFinite(loss) || this.#examined === step + 1) return
    this.suspect = step + 1
    throw lossNotFinite(step, loss, false)
  }

  /** In the step under way the gradients of these ranks are not finite, and do not count. */
  leavesOut(ranks: readonly number[]): void {
    for (const rank of ranks) this.#notFinite.add(rank)
  }

  /**
   * Returns which ranks a step is lost by, if any. All ranks call it before the step. `findCause`: names this rank's op that is to blame.
   *
   * errors: those of `settleFindings`.
   */
  async find(
    group: ProcessGroup,
    step: number,
    leavesOut: boolean,
    findCause: () => Promise<string | undefined>,
  ): Promise<LostStep | undefined> {
    let lost: LostStep | undefined
    if (this.#blamed?.step === step) lost = this.#blamed
    else if (this.isSuspect(step)) {
      this.#examined = this.suspect
      lost = await settleFindings(group, step, await findCause(), leavesOut)
    }
    if (lost) this.#blamed = undefined
    return lost
  }

  /**
   * Finds ranks that gave values to the sums of a suspect step that are not finite, although a look at their ops found none. All ranks call it;
   * `taken`: the step. errors: `train.nan` where there are such ranks, which the next `find` then names.
   */
  async blame(
    group: ProcessGroup,
    step: number,
    exchange: { sentFinite?: boolean | undefined },
    taken: Promise<void>,
  ): Promise<void> {
    const error = await taken.then(
      () => undefined,
      (thrown: unknown) => thrown,
    )
    const isWrong = exchange.sentFinite === false
    exchange.sentFinite = undefined
    if (group.error || (error && !isNan(error))) return
    const own = isWrong ? 'its gradients are not finite, and its ops do not say why' : undefined
    const lost = await settleFindings(group, step, own, true)
    if (!lost) return
    this.#blamed = { ...lost, step }
    throw error ?? lossNotFinite(step, Number.NaN, false)
  }

  /** All ranks leave out a step that `find` has found. errors: `train.nan` after too many in a row; `Eviction`. */
  async leaveOut(group: ProcessGroup, step: number, { ranks, text }: LostStep): Promise<void> {
    const { onEvent, isElastic } = this.#options
    this.#leftOutAt = step
    onEvent({ event: 'leftOut', ranks, notFinite: ranks, step, text, rank: group.rank })
    this.#notFinite.clear()
    const out = this.#faultCounts.count(group, step, ranks)
    if (out.length === 0) return
    if (isElastic) throw evictionForValues(step, out)
    const who = `The gradients of ${formatRanks(out)} were not finite in ${maxRepeatedFaults} steps in a row.`
    throw await failTogether(group, `step ${step}: ${text} ${who}`)
  }

  /** After a step that was taken, perhaps without the gradients of some ranks. errors: `Eviction`. */
  stepped(group: ProcessGroup, step: number): void {
    // The next loss may still show that this step is lost, too.
    if (this.#notFinite.size === 0) return
    const out = this.#faultCounts.count(group, step, [...this.#notFinite])
    this.#notFinite.clear()
    // A run that is not elastic would end without them.
    if (this.#options.isElastic && out.length > 0) throw evictionForValues(step, out)
  }
}

/** The error of a step whose values are not finite. */
export const isNan = (error: unknown): boolean =>
  error instanceof TabringError && error.code === 'train.nan'

const lossNotFinite = (step: number, loss: number, isOfAll: boolean) =>
  new TabringError(
    'train.nan',
    `step ${step}: expected a finite loss, got ${loss}. Lower the learning rate, or check the data for values that are not numbers.${isOfAll ? " No rank's samples alone lead to it: it comes from combining those of all ranks." : ''}`,
  )

/**
 * Settles whether a step counts in which ranks have looked where values stop being finite; `own` is this rank's finding, undefined for none.
 * Undefined: nobody has found anything. With `leavesOut` the step is left out where at most half of the ranks have found something.
 *
 * All ranks call it between the same steps.
 * errors: `train.nan` with the findings of all ranks, the same on each, where the step is not left out; the group's.
 */
async function settleFindings(
  group: ProcessGroup,
  step: number,
  own: string | undefined,
  leavesOut: boolean,
): Promise<LostStep | undefined> {
  if (group.size === 1) {
    if (own) throw new TabringError('train.nan', `step ${step}: ${own}`)
    return undefined
  }
  const found = await shareFindings((text) => gatherJson('detectAnomaly', group, text, isText), own)
  if (!found) return undefined
  const { ranks, error } = found
  if (leavesOut && 2 * ranks.length <= group.size) return { ranks, text: error.message }
  throw await failTogether(group, `step ${step}: ${error.message}`)
}

/** Returns the error with which all ranks end, once none of them waits for another: the first to throw ends the group for those that do. */
async function failTogether(group: ProcessGroup, text: string): Promise<TabringError> {
  await group.barrier().catch(() => undefined)
  return new TabringError('train.nan', text)
}
