import { poolAlignment } from '../../graph/memory/pool.ts'
import {
  endedOrSoon,
  failureOf,
  isToldTexts,
  isToldToAll,
  listsOf,
  type Told,
} from '../../graph/plan/agreement.ts'
import type { StepProgram } from '../../graph/plan/step-program.ts'
import type { Bucket } from '../../graph/trace/bucket.ts'
import {
  type BucketPlace,
  type GradientExchange,
  type MeetingPlace,
  type RankGroup,
  type StepLayout,
  type StepNotes,
  type UnevenInputs,
  Unsettled,
} from '../../graph/trace/exchange.ts'
import type { Parameter } from '../../graph/trace/parameter.ts'
import type { AlgorithmChoice } from '../../peer/algorithms/algorithm-choice.ts'
import { chunkRange } from '../../peer/algorithms/plan.ts'
import type { CollectiveOptions } from '../../peer/collective/collectives.ts'
import { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { gatherJson } from '../../peer/group/gather-json.ts'
import { GroupMeetings, meetIn } from '../../peer/group/group-meetings.ts'
import { clippedMessage } from '../../util/clipped.ts'
import { PeerError, TabringError } from '../../util/errors.ts'
import { firstDifference } from '../../util/first-difference.ts'
import { formatRanks } from '../../util/format-ranks.ts'
import { isText } from '../../util/kind-of.ts'
import { keys, setupKeys } from '../hooks/collective-keys.ts'
import { mean } from '../hooks/reducer.ts'
import type { RobustAggregation } from '../hooks/robust-aggregation.ts'
import { firstBucketBytesFor, mostFirstBytes } from './bucket-size.ts'
import { layoutIn, layoutText, meetingsText } from './told-layout.ts'

/** Up to which size sums go inside machines first, and which machine each rank counts to; 0 and none for sums over all ranks alone. */
export interface OrderOfSums {
  readonly hierarchicalMaxBytes: number
  readonly machines: readonly number[]
}

export interface RingExchangeOptions {
  readonly parameters: readonly Parameter[]
  /** Undefined where it follows from the cap of the others. */
  readonly firstBucketCapBytes: number | undefined
  readonly findsUnused: boolean
  readonly overlaps: boolean
  readonly averagesOutputs: boolean
}

/** With `robust`: how much larger than usual a rank's batch may be. */
const mostTimesUsual = 16

/**
 * The ring as step programs see it: collectives keyed by step and bucket, so that ranks may launch them in different orders.
 *
 * The group numbers the steps, of all models that train in it: one that is made anew in the same group, as where a run goes back for a
 * loss that is no number, uses no key a second time.
 */
export class RingExchange implements GradientExchange {
  readonly rank: number
  readonly size: number
  readonly parameters: readonly Parameter[]
  readonly findsUnused: boolean
  readonly overlaps: boolean
  readonly averagesOutputs: boolean
  /** What the caller, or the run that is gone on with, has chosen for the first bucket. */
  firstCapBytes: number | undefined
  readonly programs = new Map<number, StepProgram>()
  uneven: UnevenInputs | undefined
  readonly flags = { own: 0, sum: 0 }
  sentFinite: boolean | undefined
  ready: Promise<void> = Promise.resolve()
  /** Once it is settled. */
  capBytes: number | undefined
  /** Whether the caller has chosen it. */
  isCapGiven = false
  /** How the collectives of steps travel; default: by the group's choice. */
  choice: AlgorithmChoice | undefined
  /** Whether the caller has chosen it. */
  isChoiceGiven = false
  reducer = mean
  /** Whose reducer that is, where the model has it by its options. */
  robust: RobustAggregation | undefined
  /** How many `noSync` are under way: they may overlap. */
  pauses = 0
  readonly #group: CollectiveGroup
  /** Of the step under way. */
  #sequence = 0
  /** Smaller groups that meet in forward and backward. */
  readonly #smaller = new GroupMeetings()
  #programCount = 0

  constructor(group: CollectiveGroup, options: RingExchangeOptions) {
    this.rank = group.rank
    this.size = group.size
    this.parameters = options.parameters
    this.findsUnused = options.findsUnused
    this.overlaps = options.overlaps
    this.averagesOutputs = options.averagesOutputs
    this.firstCapBytes = options.firstBucketCapBytes
    this.#group = group
  }

  get bucketCapBytes(): number {
    if (this.capBytes === undefined) throw new Unsettled('the size of buckets', this.ready)
    return this.capBytes
  }

  get firstBucketCapBytes(): number {
    return Math.min(this.firstCap, this.bucketCapBytes)
  }

  /** For the first bucket, whatever that for the others is: as chosen, else PyTorch's, or by the measured size of the others. units: bytes. */
  get firstCap(): number {
    if (this.firstCapBytes !== undefined) return this.firstCapBytes
    return this.isCapGiven ? mostFirstBytes : firstBucketBytesFor(this.bucketCapBytes)
  }

  /** Whose gradients are added first, which decides the bits of sums. */
  get orderOfSums(): OrderOfSums {
    const { hierarchicalMaxBytes = 0, machines = this.#group.machines } =
      this.choice ?? this.#group.choice
    return {
      hierarchicalMaxBytes,
      machines: hierarchicalMaxBytes > 0 && machines ? [...machines] : [],
    }
  }

  /** Has sums go in this order, where the group's links allow it. */
  sumInOrder({ hierarchicalMaxBytes, machines }: OrderOfSums): void {
    if (hierarchicalMaxBytes > 0 && !this.#group.isFullyLinked) return
    const choice = this.choice ?? this.#group.choice
    this.choice =
      hierarchicalMaxBytes > 0
        ? { ...choice, hierarchicalMaxBytes, machines }
        : { ...choice, hierarchicalMaxBytes }
  }

  get exchangesGradients(): boolean {
    return this.size > 1 || this.reducer !== mean
  }

  /** Whether a program has been compiled, or is being. */
  get hasPrograms(): boolean {
    return this.#programCount > 0
  }

  get isSynchronizing(): boolean {
    return this.pauses === 0
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

  countProgram(): number {
    return this.#programCount++
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
    const step = { sequence: this.#sequence, choice: this.choice }
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
    return this.#group.allGather(data, { alignment: poolAlignment })
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

  expectMeetings(groups: readonly number[]): void {
    this.#smaller.expectMeetings(groups)
  }

  meet(
    index: number,
    values: Float32Array<ArrayBuffer>,
    place: MeetingPlace,
    onstarted?: () => void,
  ): Promise<Float32Array<ArrayBuffer>> {
    if (place.group > 0) {
      const met = this.#smaller.meet(index, values, place, onstarted, { choice: this.choice })
      // The step fails, and all ranks of the model wait for it.
      met.catch((error) => error instanceof PeerError && this.#group.abort(error))
      return met
    }
    return meetIn(this.#group, values, place.meeting, this.#key(keys.meetings + index, onstarted))
  }

  broadcastBuffers(words: Float32Array<ArrayBuffer>, onstarted?: () => void): Promise<void> {
    return this.#group.broadcast(words, this.bufferRoot, this.#key(keys.buffers, onstarted))
  }

  /** By these all gradients are weighed. errors: `peer.mismatch` for a rank whose batches are far larger than most. */
  #checkCounts(counts: readonly number[]): void {
    const usual = counts.toSorted((a, b) => a - b)[(counts.length - 1) >> 1]
    const wrong = counts.findIndex((count) => count > mostTimesUsual * usual)
    if (wrong < 0) return
    throw new PeerError(
      'peer.mismatch',
      `compile: rank ${this.#group.ranks[wrong]} counts ${counts[wrong]} samples in a batch, over ${mostTimesUsual} times as many as most ranks, ${usual}. With aggregation or trust, use batches of about the same size.`,
    )
  }

  async settleLayout({
    unused,
    buckets,
    meetings,
    samples,
    fixed,
  }: StepLayout): Promise<readonly number[]> {
    const { ranks } = this.#group
    const among = meetings.map((number) =>
      number === 0 ? ranks : this.#smaller.groups[number - 1].ranks,
    )
    const weighed =
      samples === undefined ? 'equal gradient weights' : 'gradient weights by counted samples'
    const own = [
      layoutText({ unused, meetings: among, samples: samples ?? 0, fixed }),
      meetingsText(meetings.length),
      weighed,
      ...buckets,
    ]
    const told = await this.#tellWhileCompiling(
      own,
      (texts) => layoutIn(texts, ranks) !== undefined,
    )
    const parsed = told.map((texts) => layoutIn(texts, ranks)!)
    const unusedOf = parsed.map((one) => one.unused)
    if (!this.findsUnused && unusedOf.some((names) => names.length > 0)) throw unusedError(unusedOf)
    const optimizers = firstDifference(
      parsed.map((one) => one.fixed),
      'no further group',
    )
    if (optimizers) {
      throw new PeerError(
        'peer.mismatch',
        `compile: ranks disagree about the optimizer: ${optimizers.told}. Each rank updates a part of the weights for all ranks: create the same optimizer on all ranks.`,
      )
    }
    const difference = firstDifference(
      told.map(([, ...layout]) => layout),
      'no further bucket',
    )
    if (!difference) {
      checkMeetings(
        parsed.map((one) => one.meetings),
        ranks,
      )
      const counts = parsed.map((one) => one.samples)
      if (this.robust) this.#checkCounts(counts)
      return counts
    }
    throw new PeerError(
      'peer.mismatch',
      `compile: ranks disagree about the step: ${difference.told}. Compile the same function on all ranks, in the same order.`,
    )
  }

  async settleUsed(own: readonly Parameter[]): Promise<readonly Parameter[]> {
    const places = own.map((parameter) => String(this.parameters.indexOf(parameter)))
    const every = new Set(this.parameters.map((_, place) => String(place)))
    const all = await this.#tellWhileCompiling(places, (texts) =>
      texts.every((one) => every.has(one)),
    )
    return [...new Set(all.flat())].map((place) => this.parameters[Number(place)])
  }

  async tellFailure(error: unknown): Promise<void> {
    if (this.size === 1 || isToldToAll(error)) return
    await endedOrSoon(
      this.#tellWhileCompiling(failureOf(error), () => true),
      this.#group.env,
    )
  }

  abort(reason: string): void {
    this.#group.abort(reason)
  }

  get ranks(): readonly number[] {
    return this.#group.ranks
  }

  /** What each rank tells of the step that it compiles, in rank order. `areRight`: whether a rank may say that. errors: those of `listsOf`; the group's. */
  async #tellWhileCompiling(
    own: Told,
    areRight: (texts: readonly string[]) => boolean,
  ): Promise<readonly (readonly string[])[]> {
    const isRight = (told: unknown): told is Told =>
      isToldTexts(told) && ('failure' in told || areRight(told))
    const [key] = setupKeys(this.#group, 2)
    await this.ready
    const all = this.size > 1 ? await gatherJson('compile', this.#group, own, isRight, key) : [own]
    return listsOf(this.#group.ranks, all)
  }

  #key(bucket: number, onstarted?: () => void): CollectiveOptions {
    return { sequence: this.#sequence, bucket, onstarted, choice: this.choice }
  }

  #alignedKey(bucket: number, onstarted?: () => void): CollectiveOptions {
    return { ...this.#key(bucket, onstarted), alignment: poolAlignment }
  }
}

/** errors: `peer.mismatch` where a rank meets others that do not meet it. `lists`: by rank and meeting, the ranks that it meets. */
function checkMeetings(
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
  const told = names.map((name) => {
    const ranks = unusedOf.flatMap((own, rank) => (own.includes(name) ? [rank] : []))
    return `"${name}" on ${formatRanks(ranks)}`
  })
  return new TabringError(
    'graph.misuse',
    `DistributedDataParallel: every parameter that requires a gradient must get one, but there is none for ${clippedMessage(told.join(', '))}. Use them in the loss, freeze them with requiresGrad_(false), or wrap the model with findUnusedParameters: true.`,
  )
}
