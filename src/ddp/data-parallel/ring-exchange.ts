import { poolAlignment } from '../../graph/memory/pool.ts'
import type { Bucket } from '../../graph/trace/bucket.ts'
import type {
  BucketPlace,
  GradientExchange,
  RankGroup,
  SyncPointPlace,
  UnevenInputs,
} from '../../graph/trace/exchange.ts'
import type { Parameter } from '../../graph/trace/parameter.ts'
import type { StepNotes } from '../../graph/trace/step-notes.ts'
import { chunkRange } from '../../peer/algorithms/plan.ts'
import type { CollectiveOptions } from '../../peer/collective/collectives.ts'
import { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { gatherJson } from '../../peer/group/gather-json.ts'
import { GroupSyncPoints, syncIn } from '../../peer/group/group-sync-points.ts'
import { PeerError, TabringError } from '../../util/errors.ts'
import { isText } from '../../util/kind-of.ts'
import { keys } from '../hooks/collective-keys.ts'
import { mean } from '../hooks/reducer.ts'
import type { RobustAggregation } from '../hooks/robust-aggregation.ts'
import type { ModelExactTraining } from './exact-training.ts'
import { RingCompiling } from './ring-compiling.ts'
import { type RingOptions, RingSettings } from './ring-settings.ts'

/**
 * The ring as step programs see it: collectives keyed by step and bucket, so that ranks may launch them in different orders.
 *
 * The group numbers the steps, of all models that train in it: one that is made again in the same group, as where a run goes back for a
 * loss that is no number, uses no key a second time.
 */
export class RingExchange implements GradientExchange {
  readonly rank: number
  readonly size: number
  readonly parameters: readonly Parameter[]
  readonly settings: RingSettings
  readonly compiling: RingCompiling
  uneven: UnevenInputs | undefined
  readonly flags = { own: 0, sum: 0 }
  sentFinite: boolean | undefined
  ready: Promise<void> = Promise.resolve()
  reducer = mean
  /** Whose reducer that is, where the model has it by its options. */
  robust: RobustAggregation | undefined
  /** With the option `exact`. */
  exact: ModelExactTraining | undefined
  /** Each `noSync` under way: they may overlap. */
  readonly pauses = new Set<{ readonly isAwaited: boolean }>()
  /** How many of their functions are being called, up to their first wait. */
  pausing = 0
  readonly #group: CollectiveGroup
  /** Of the step under way. */
  #sequence = 0
  /** Smaller groups that meet in forward and backward. */
  readonly #smaller = new GroupSyncPoints()

  constructor(group: CollectiveGroup, parameters: readonly Parameter[], options: RingOptions) {
    this.rank = group.rank
    this.size = group.size
    this.parameters = parameters
    this.settings = new RingSettings(group, options, () => this.ready)
    this.compiling = new RingCompiling(group, this, this.#smaller)
    this.#group = group
  }

  get exchangesGradients(): boolean {
    return this.size > 1 || this.reducer !== mean
  }

  get isSynchronizing(): boolean {
    return this.pauses.size === 0
  }

  refuseUnclear(): void {
    if (this.pausing > 0 || [...this.pauses].every(({ isAwaited }) => isAwaited)) return
    throw new TabringError(
      'graph.misuse',
      'noSync: a function that it was given has not ended, and nobody waits for it, so that this run may belong to it or not. Write await ddp.noSync(…).',
    )
  }

  get bufferRoot(): number {
    return this.uneven?.root ?? 0
  }

  chunk(length: number, rank: number): { start: number; end: number } {
    return chunkRange(length, this.size, rank, poolAlignment)
  }

  get nextSequence(): number {
    return this.#group.nextSequence
  }

  beginStep(): void {
    this.#sequence = this.#group.takeSequence()
    this.#smaller.beginStep()
  }

  async reduceGradients(
    bucket: Bucket,
    place: BucketPlace,
    data: Float32Array<ArrayBuffer>,
    notes: StepNotes,
    onstarted?: () => void,
  ): Promise<void> {
    if (this.sentFinite) this.sentFinite = data.every(Number.isFinite)
    const step = { sequence: this.#sequence, choice: this.settings.choice }
    const group = this.#group
    try {
      await this.reducer({ group, bucket, place, data, notes, step, onstarted })
    } catch (error) {
      // The other buckets wait for what goes along with the first one.
      if (place.index === 0) notes.fail(error)
      throw error
    }
  }

  allGather(bucket: number, data: Float32Array<ArrayBuffer>, onstarted?: () => void) {
    return this.#group.allGather(data, this.#alignedKey(bucket, onstarted))
  }

  gather(data: Float32Array<ArrayBuffer>): Promise<void> {
    return this.#group.allGather(data, { alignment: poolAlignment, label: 'stateDict' })
  }

  gatherTexts(own: string): Promise<readonly string[]> {
    return gatherJson('detectAnomaly', this.#group, own, isText)
  }

  gatherScalars(index: number, values: Float32Array<ArrayBuffer>, onstarted?: () => void) {
    return this.#group.allGatherConcat(values, this.#key(keys.scalars + index, onstarted))
  }

  numberOf(group: RankGroup): number {
    if (group === this.#group) return 0
    const { ranks } = this.#group
    if (!(group instanceof CollectiveGroup) || !group.ranks.every((one) => ranks.includes(one))) {
      throw new TabringError(
        'graph.misuse',
        `SyncBatchNorm: processGroup must contain only ranks of the model's group [${ranks.join(', ')}], got [${group.ranks.join(', ')}]. Create it with newGroup().`,
      )
    }
    return this.#smaller.numberOf(group)
  }

  expectSyncPoints(groups: readonly number[]): void {
    this.#smaller.expectSyncPoints(groups)
  }

  syncRanks(
    index: number,
    values: Float32Array<ArrayBuffer>,
    place: SyncPointPlace,
    onstarted?: () => void,
  ): Promise<Float32Array<ArrayBuffer>> {
    if (place.group > 0) {
      const met = this.#smaller.syncRanks(index, values, place, onstarted, {
        choice: this.settings.choice,
      })
      // The step fails, and all ranks of the model wait for it.
      met.catch((error) => error instanceof PeerError && this.#group.abort(error))
      return met
    }
    return syncIn(
      this.#group,
      values,
      place.syncPoint,
      this.#key(keys.syncPoints + index, onstarted),
    )
  }

  broadcastBuffers(words: Float32Array<ArrayBuffer>, onstarted?: () => void): Promise<void> {
    return this.#group.broadcast(words, this.bufferRoot, this.#key(keys.buffers, onstarted))
  }

  abort(reason: string): void {
    this.#group.abort(reason)
  }

  get ranks(): readonly number[] {
    return this.#group.ranks
  }

  #key(bucket: number, onstarted?: () => void): CollectiveOptions {
    return { sequence: this.#sequence, bucket, onstarted, choice: this.settings.choice }
  }

  #alignedKey(bucket: number, onstarted?: () => void): CollectiveOptions {
    return { ...this.#key(bucket, onstarted), alignment: poolAlignment }
  }
}
