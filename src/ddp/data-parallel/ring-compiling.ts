import {
  areTexts,
  endedOrSoon,
  failureOf,
  isOnAllRanks,
  listsOf,
  type Outcomes,
} from '../../graph/plan/agreement.ts'
import type { StepProgram } from '../../graph/plan/step-program.ts'
import type { JointCompiling, StepLayout } from '../../graph/trace/exchange.ts'
import type { Parameter } from '../../graph/trace/parameter.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { gatherJson } from '../../peer/group/gather-json.ts'
import type { GroupSyncPoints } from '../../peer/group/group-sync-points.ts'
import { clippedMessage } from '../../util/clipped.ts'
import { PeerError, TabringError } from '../../util/errors.ts'
import { firstDifference } from '../../util/first-difference.ts'
import { formatRanks } from '../../util/format-ranks.ts'
import { setupKeys } from '../hooks/collective-keys.ts'
import { mean, type Reducer } from '../hooks/reducer.ts'
import type { RobustAggregation } from '../hooks/robust-aggregation.ts'
import { layoutIn, layoutText, syncPointsText } from './layout-report.ts'

/** With `robust`: how much larger than usual a rank's batch may be. */
const maxTimesUsual = 16

/** The part of the model's exchange that compiling uses. */
interface Compiled {
  readonly parameters: readonly Parameter[]
  readonly settings: { readonly findsUnused: boolean }
  readonly robust: RobustAggregation | undefined
  readonly reducer: Reducer
  readonly ready: Promise<void>
}

/** How the ranks of a model agree on the steps that they compile. */
export class RingCompiling implements JointCompiling<Parameter> {
  readonly programs = new Map<number, StepProgram>()
  readonly #group: CollectiveGroup
  readonly #exchange: Compiled
  /** Smaller groups that meet in forward and backward. */
  readonly #smaller: GroupSyncPoints
  #count = 0

  constructor(group: CollectiveGroup, exchange: Compiled, smaller: GroupSyncPoints) {
    this.#group = group
    this.#exchange = exchange
    this.#smaller = smaller
  }

  /** True if a program has been compiled, or is being. */
  get hasBegun(): boolean {
    return this.#count > 0
  }

  countProgram(): number {
    return this.#count++
  }

  /** By these all gradients are weighed. errors: `peer.mismatch` for a rank whose batches are far larger than most. */
  #checkCounts(counts: readonly number[]): void {
    const usual = counts.toSorted((a, b) => a - b)[(counts.length - 1) >> 1]
    const wrong = counts.findIndex((count) => count > maxTimesUsual * usual)
    if (wrong < 0) return
    throw new PeerError(
      'peer.mismatch',
      `compile: rank ${this.#group.ranks[wrong]} counts ${counts[wrong]} samples in a batch, over ${maxTimesUsual} times as many as most ranks, ${usual}. With aggregation or trust, use batches of about the same size.`,
    )
  }

  async settleLayout({
    unused,
    buckets,
    syncPoints,
    sharedBuffers,
    samples,
    fixed,
  }: StepLayout): Promise<readonly number[]> {
    const { ranks } = this.#group
    const among = syncPoints.map((number) =>
      number === 0 ? ranks : this.#smaller.groups[number - 1].ranks,
    )
    const weighed =
      samples === undefined ? 'equal gradient weights' : 'gradient weights by counted samples'
    const own = [
      layoutText({ unused, syncPoints: among, samples: samples ?? 0, fixed }),
      syncPointsText(syncPoints.length),
      weighed,
      this.#exchange.reducer === mean ? 'no communication hook' : 'a communication hook',
      `${sharedBuffers} running statistics changed${sharedBuffers === 0 ? ', as after eval()' : ''}`,
      ...buckets,
    ]
    const received = await this.#tellWhileCompiling(
      own,
      (texts) => layoutIn(texts, ranks) !== undefined,
    )
    const parsed = received.map((texts) => layoutIn(texts, ranks)!)
    const unusedOf = parsed.map((one) => one.unused)
    if (!this.#exchange.settings.findsUnused && unusedOf.some((names) => names.length > 0))
      throw unusedError(unusedOf)
    const optimizers = firstDifference(
      parsed.map((one) => one.fixed),
      'no further group',
    )
    if (optimizers) {
      throw new PeerError(
        'peer.mismatch',
        `compile: ranks disagree about the optimizer: ${optimizers.text}. Each rank updates a part of the weights for all ranks: create the same optimizer on all ranks.`,
      )
    }
    const difference = firstDifference(
      received.map(([, ...layout]) => layout),
      'no further bucket',
    )
    if (!difference) {
      checkSyncPoints(
        parsed.map((one) => one.syncPoints),
        ranks,
      )
      const counts = parsed.map((one) => one.samples)
      if (this.#exchange.robust) this.#checkCounts(counts)
      return counts
    }
    throw new PeerError(
      'peer.mismatch',
      `compile: ranks disagree about the step: ${difference.text}. Compile the same function on all ranks, in the same order, with the same hooks.`,
    )
  }

  async settleUsed(own: readonly Parameter[]): Promise<readonly Parameter[]> {
    const places = own.map((parameter) => String(this.#exchange.parameters.indexOf(parameter)))
    const every = new Set(this.#exchange.parameters.map((_, place) => String(place)))
    const all = await this.#tellWhileCompiling(places, (texts) =>
      texts.every((one) => every.has(one)),
    )
    return [...new Set(all.flat())].map((place) => this.#exchange.parameters[Number(place)])
  }

  async tellFailure(error: unknown): Promise<void> {
    if (this.#group.size === 1 || isOnAllRanks(error)) return
    await endedOrSoon(
      this.#tellWhileCompiling(failureOf(error), () => true),
      this.#group.env,
    )
  }

  /** Gathers each rank's report on the step that it compiles, in rank order. `areRight`: whether a rank may say that. errors: those of `listsOf`; the group's. */
  async #tellWhileCompiling(
    own: Outcomes,
    areRight: (texts: readonly string[]) => boolean,
  ): Promise<readonly (readonly string[])[]> {
    const isRight = (received: unknown): received is Outcomes =>
      areTexts(received) && ('failure' in received || areRight(received))
    const [key] = setupKeys(this.#group, 2)
    await this.#exchange.ready
    const all =
      this.#group.size > 1 ? await gatherJson('compile', this.#group, own, isRight, key) : [own]
    return listsOf(this.#group.ranks, all)
  }
}

/** errors: `peer.mismatch` where a rank meets others that do not meet it. `lists`: by rank and meeting, the ranks that it meets. */
function checkSyncPoints(
  lists: readonly (readonly (readonly number[])[])[],
  ranks: readonly number[],
): void {
  for (const [rank, list] of lists.entries()) {
    for (const [at, among] of list.entries()) {
      const other = among.find((one) => lists[ranks.indexOf(one)][at].join() !== among.join())
      if (other === undefined) continue
      const others = lists[ranks.indexOf(other)][at]
      throw new PeerError(
        'peer.mismatch',
        `SyncBatchNorm: ranks disagree about processGroup: [${among.join(', ')}] on rank ${ranks[rank]}, [${others.join(', ')}] on rank ${other}. Pass each rank the group that it is in.`,
      )
    }
  }
}

function unusedError(unusedOf: readonly (readonly string[])[]): TabringError {
  const names = [...new Set(unusedOf.flat())]
  const received = names.map((name) => {
    const ranks = unusedOf.flatMap((own, rank) => (own.includes(name) ? [rank] : []))
    return `"${name}" on ${formatRanks(ranks)}`
  })
  return new TabringError(
    'graph.misuse',
    `DistributedDataParallel: every parameter that requires a gradient must get one, but there is none for ${clippedMessage(received.join(', '))}. Use them in the loss, freeze them with requiresGrad_(false), or wrap the model with findUnusedParameters: true.`,
  )
}
