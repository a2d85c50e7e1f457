import type { SyncPoint } from '../../kernels/sync-ranks/sync-ranks.ts'
import type { GivenInputs } from '../memory/host-values.ts'
import type { StepNotes } from './step-notes.ts'

/** Which exchange of which step it is; see `takeSequence`. */
export interface StepKey {
  readonly sequence: number
  readonly bucket: number
}

/** Ranks that compile the same step: a process group. */
export interface CompilingRanks extends RankGroup {
  /** @internal Gathers a value of every rank, in rank order: anything that JSON holds and that `isRight`. */
  gatherJson<T>(
    label: string,
    own: T,
    isRight: (received: unknown) => received is T,
    key?: StepKey,
  ): Promise<T[]>
  /** Ends the step on all ranks. */
  abort(reason: string): void
}

/** How a step over several ranks sends tensors: a process group. */
export interface RankMessages extends CompilingRanks {
  send(
    contents: Uint8Array<ArrayBuffer>,
    to: number,
    options: { readonly tag: number; readonly label?: string },
  ): Promise<void>
  recv(
    contents: Uint8Array<ArrayBuffer>,
    from: number,
    options: { readonly tag: number; readonly label?: string },
  ): Promise<void>
  /** A number for the step that begins: the same on all ranks, which begin them in one order. */
  takeSequence(): number
  /** Every rank's values, in rank order. */
  allGatherConcat(
    values: Float32Array<ArrayBuffer>,
    key: StepKey,
  ): Promise<Float32Array<ArrayBuffer>>
  /** Copies a rank's contents to all. */
  broadcast(
    contents: Float32Array | Int32Array,
    root: number,
    options: { readonly label: string },
  ): Promise<void>
}

/** The part of a step that ranks compare when it is compiled: they exchange by position, so it must be the same on all of them. */
export interface StepLayout {
  /** Names of parameters that `backward` did not reach. */
  readonly unused: readonly string[]
  /** By bucket: its length and its parameters. */
  readonly buckets: readonly string[]
  /** By sync point in forward and backward: the number of its group, see `numberOf`. */
  readonly syncPoints: readonly number[]
  /** How many buffers of modules the step changes and all ranks take from one. */
  readonly sharedBuffers: number
  /** Count of this rank's full batch, by which gradients are weighed; undefined where ranks have equal weights. */
  readonly samples: number | undefined
  /** By group of an optimizer: its class, and which kernels and states its settings have chosen. */
  readonly fixed: readonly string[]
}

/** Counts of the runs of one update so far, which the micro-steps of an accumulation and the run that ends it share. */
export interface Tally {
  runs: number
  /** Runs that gave their weight themselves, and the sum of those weights. */
  weighed: number
  weights: number
  count: number
}

/** Weights of a program's runs; computed by Weighing. */
export interface GradientWeighing {
  /** Count of this rank's full batch; undefined where runs are weighted equally. */
  readonly samples: number | undefined
  /** The factor of an accumulation's sum, where no ranks exchange it. */
  readonly takeFactor: number
  /** Takes what counts in full batches on each rank. */
  settle(samples: readonly number[]): void
  /** Counts a run that has given its scalars; `inputs` undefined for a shadow's. */
  begin(inputs: GivenInputs | undefined, allowUpdates: boolean): void
  /** Notes that ranks send each other in the step that has begun. `flags`: what this one asks of all. */
  stepNotes(flags: number): StepNotes
}

/** Requests of ranks to all with each step, without a message for it. */
export interface StepFlags {
  /** A small whole number of this rank; 0 unless it is set. */
  own: number
  /** The sum of all ranks' in the step that ended last: the same on all of them. */
  sum: number
}

/** A bucket, as an exchange is called with it: its number, and what the caller knows besides. */
export interface ExchangedBucket {
  readonly index: number
}

/** A program that updates, as the exchange lists it. */
export interface ExchangedProgram {
  shadow(): Promise<void>
}

/** Which bucket of a step it is: its position in the step's order of exchange. */
export interface BucketPlace {
  readonly index: number
  readonly isLast: boolean
}

export interface SyncPointPlace {
  readonly syncPoint: SyncPoint
  /** The number of its group, see `StepSyncPoints.numberOf`. */
  readonly group: number
}

/** A subset of a model's ranks, as returned by `newGroup`, and this rank's place in it. */
export interface RankGroup {
  readonly rank: number
  readonly size: number
  /** The global rank of each rank in the group. */
  readonly ranks: readonly number[]
}

/** How the ranks of a step synchronize in the middle of forward and backward. */
export interface StepSyncPoints {
  /**
   * The number that this rank has for a group; 0 is all ranks of a data-parallel model.
   *
   * errors: `graph.misuse` for a group that cannot synchronize in this step.
   */
  numberOf(group: RankGroup): number
  /** Allows sync points of these groups from now on; called on all their ranks, where a program is made. */
  expectSyncPoints(groups: readonly number[]): void
  /** Called once at the start of each step. */
  beginStep(): void
  /**
   * Combines the values of a group's ranks; `index` is the number of the sync point in the step.
   *
   * shape: gather [n] -> [size * n]; sum [n] -> [n]; scatter [size * n] -> [n]; all in rank order.
   */
  syncRanks(
    index: number,
    values: Float32Array<ArrayBuffer>,
    place: SyncPointPlace,
    onAllBegun?: () => void,
  ): Promise<Float32Array<ArrayBuffer>>
}

/** The groups of a step without a data-parallel model. */
export interface StepGroups extends StepSyncPoints {
  /** By number, from 1 on. */
  readonly groups: readonly CompilingRanks[]
}

/** How ranks with more and with fewer batches begin a step: those without take part all the same. */
export interface UnevenInputs {
  /** The rank whose buffers all take. */
  readonly root: number
  /** True if gradients are divided by all ranks, also those without a batch. */
  readonly dividesByAll: boolean
  /** Begins a step; resolves to the weight of this rank's gradients in it, of `weight`. */
  begin(program: ExchangedProgram, weight: number): Promise<number>
}

/** Settings chosen for a model as it was wrapped, or measured. */
export interface ExchangeSettings {
  /** Buckets close at this many bytes, the first one at `firstBucketCapBytes`. errors: `Unsettled` while ranks measure it. */
  readonly bucketCapBytes: number
  readonly firstBucketCapBytes: number
  /** True if parameters may be without a gradient, on some ranks or on all. */
  readonly findsUnused: boolean
  /** True if a bucket is exchanged while later parts of backward run, or not before all have. */
  readonly overlaps: boolean
  /** True if scalar outputs become means over the ranks. */
  readonly averagesOutputs: boolean
}

/** How the ranks of a model agree on the steps that they compile, in one order. */
export interface JointCompiling<Parameter> {
  /** Those that update, by the number that ranks have for them. */
  readonly programs: Map<number, ExchangedProgram>
  /** A number for a program that is being compiled: the same on all ranks. */
  countProgram(): number
  /** Compares a step over ranks; returns the `samples` of each, 0 where they have equal weights. errors: the same on all ranks, naming them. */
  settleLayout(layout: StepLayout): Promise<readonly number[]>
  /** Agrees on the parameters that any rank uses: rank 0's in its order, then the others'. */
  settleUsed(own: readonly Parameter[]): Promise<readonly Parameter[]>
  /**
   * Informs the others, which wait for this rank's step, that it cannot be compiled here; resolves when they know, or soon. Not for errors that
   * this exchange has thrown on all ranks.
   */
  tellFailure(error: unknown): Promise<void>
}

/** Exchanges of ranks between backward and the next step; `onAllBegun`: all ranks have begun it. */
export interface StepCollectives {
  /** Elements [start, end) of a bucket of `length` elements that `rank` reduces and updates. */
  chunk(length: number, rank: number): { start: number; end: number }
  /**
   * Sums a bucket's gradients over ranks in place, and what lies behind them in `data`; afterwards this rank's chunk holds the sum, the
   * rest is undefined. The words of `notes`, one for all buckets of a step, go along with the first one; gradients come multiplied by
   * what they settle.
   */
  reduceGradients(
    bucket: ExchangedBucket,
    place: BucketPlace,
    data: Float32Array<ArrayBuffer>,
    notes: StepNotes,
    onAllBegun?: () => void,
  ): Promise<void>
  /** Every rank's `values`, in rank order; `index` counts such calls within the step. All ranks give equally many. */
  gatherScalars(
    index: number,
    values: Float32Array<ArrayBuffer>,
    onAllBegun?: () => void,
  ): Promise<Float32Array<ArrayBuffer>>
  /** Spreads every rank's chunk to all ranks, in place. */
  allGather(bucket: number, data: Float32Array<ArrayBuffer>, onAllBegun?: () => void): Promise<void>
  /** The rank whose buffers all take in the step under way. */
  readonly bufferRoot: number
  /** Copies `bufferRoot`'s words to all ranks, in place. */
  broadcastBuffers(words: Float32Array<ArrayBuffer>, onAllBegun?: () => void): Promise<void>
}

/** Collectives that all ranks begin outside of steps, in one order. */
export interface ModelCollectives {
  /** As `allGather` of steps. */
  gather(data: Float32Array<ArrayBuffer>): Promise<void>
  /** Every rank's text, in rank order. */
  gatherTexts(own: string): Promise<readonly string[]>
  /** Ends the step on all ranks. */
  abort(reason: string): void
}

/** The interface of steps to their caller. */
export interface WatchedSteps {
  readonly flags: StepFlags
  /** By which `sequence` the ring will report the collectives of the step that begins next. */
  readonly nextSequence: number
  /** While it is set: whether all that this rank has given to sums since then is finite. */
  sentFinite?: boolean | undefined
}

/**
 * The interface of a step program and a group of ranks: the program knows buckets, the exchange knows the ring.
 *
 * Implemented over a process group by ddp/data-parallel/ring-exchange.ts; the graph layer sees no peers.
 */
export interface GradientExchange<Parameter = unknown>
  extends RankGroup,
    StepSyncPoints,
    StepCollectives,
    ModelCollectives,
    WatchedSteps {
  readonly settings: ExchangeSettings
  readonly compiling: JointCompiling<Parameter>
  /** Of the model, in the order in which the module lists them. */
  readonly parameters: readonly Parameter[]
  /** Resolves when all ranks hold rank 0's parameters; programs wait for it before they are made. */
  readonly ready: Promise<void>
  /** True if gradients leave the program in each step that updates: there are several ranks, or a communication hook. */
  readonly exchangesGradients: boolean
  /** False inside `noSync`: runs that begin now add up gradients and exchange nothing. */
  readonly isSynchronizing: boolean
  /** errors: `graph.misuse` for a run that may be inside `noSync` or outside of it. */
  refuseUnclear(): void
  /** Inside `join`. */
  readonly uneven: UnevenInputs | undefined
}

/**
 * Thrown by a trace that needs what ranks settle first, such as the size of buckets. The function is traced again when they have.
 */
export class Unsettled extends Error {
  readonly settled: Promise<unknown>

  constructor(what: string, settled: Promise<unknown>) {
    super(`${what}: the ranks have not agreed on this yet. Wait for ddp.ready.`)
    this.settled = settled
    // The next trace waits for it; until then it must not count as unhandled.
    settled.catch(() => undefined)
  }
}

/** Returns the result of `make`, called again whenever a trace waits for the ranks. errors: those of `make` and of the ranks. */
export async function whenSettled<T>(make: () => T): Promise<T> {
  for (;;) {
    try {
      return make()
    } catch (error) {
      if (!(error instanceof Unsettled)) throw error
      await error.settled
    }
  }
}
