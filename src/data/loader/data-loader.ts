import { DataError } from '../../util/errors.ts'
import { isIterable, kindOf, quoted } from '../../util/kind-of.ts'
import {
  checkArgument,
  checkNumber,
  checkOptions,
  checkRecord,
  type OptionNames,
} from '../../util/options.ts'
import { preparedLoads } from '../../util/prepared-loads.ts'
import { permutation } from '../../util/random.ts'
import { switchValue } from '../../util/switches.ts'
import type { Batch, FieldDTypes } from '../collate.ts'
import { checkDataset, describeInner, requireIndex } from '../datasets.ts'
import type { Dataset, Sample } from '../samples.ts'
import { type DataLoaderState, requireSameBatches } from './loader-state.ts'
import { makeBatch } from './make-batch.ts'
import { SampleWorkers } from './sample-workers.ts'
import { startSampleWorker } from './start-worker.ts'

/** Chooses and orders samples; `DistributedSampler` is one. */
export interface Sampler extends Iterable<number> {
  readonly length: number
  /** The epoch set by `setEpoch`; undefined before its first call. */
  readonly chosenEpoch?: number | undefined
  setEpoch?(epoch: number): void
  /**
   * Returns the indices of an epoch that the loader counts, used until `setEpoch` is called. Without this method, every epoch iterates over
   * the sampler.
   */
  indices?(epoch: number): ArrayLike<number>
  /** Returns what determines its order, as plain values, for the loader's state. */
  stateDict?(): unknown
  loadStateDict?(state: never): void
}

/** Puts batches into memory from which the device reads without a host copy; `StagedUploads` is one. */
export interface BatchPinner {
  pin(batch: object): Promise<object>
  /** Releases the memory of an unused batch. */
  unpin(batch: object): void
}

export interface DataLoaderOptions<S, B> {
  /** Default 1. */
  batchSize?: number
  /** True if each epoch has a new order. Default false. */
  shuffle?: boolean
  /** Used instead of `shuffle`. */
  sampler?: Sampler
  /** Number of web workers that make batches in advance. Default 0: batches are made when requested, on this thread. */
  numWorkers?: number
  /** Starts your own worker, whose file calls `serveSamples(dataset)`. Required for data sets that cannot describe themselves. */
  worker?: () => Worker
  /** Number of batches that each worker makes in advance. Default 2. */
  prefetchFactor?: number
  /** Staged uploads: batches are in memory shared with the GPU process before they are requested. Default false. */
  pinMemory?: BatchPinner | false
  /** True if to drop an incomplete last batch. Default false. */
  dropLast?: boolean
  /** Stacks samples, on this thread. Default: defaultCollate, in the worker if there is one. */
  collateFn?: (samples: S[]) => B
  /** Element types of fields for `defaultCollate`, such as `{ y: 'f32' }` for targets that are plain numbers with fractions. */
  dtypes?: FieldDTypes
  /** Seed of the order and of random transforms; the same on every rank. Default 0. */
  seed?: number
}

const loaderOptions: OptionNames<DataLoaderOptions<unknown, unknown>> = {
  batchSize: true,
  shuffle: true,
  sampler: true,
  numWorkers: true,
  worker: true,
  prefetchFactor: true,
  pinMemory: true,
  dropLast: true,
  collateFn: true,
  dtypes: true,
  seed: true,
}

/**
 * Batches of a data set, like `torch.utils.data.DataLoader`: `for await (const batch of loader)` is one epoch.
 *
 * Order and contents depend only on the seed, the epoch and the indices of the samples, never on the number of workers. Each loop is the
 * next epoch, from 0; `setEpoch` sets another one. Once the sampler's own `setEpoch` was called, its epoch applies until the next call, as
 * in PyTorch. Workers live until `close`.
 *
 * `stateDict` is the position of the current loop; a loader that loads it with `loadStateDict` resumes with the next batch.
 * errors: those of a sample, with its index and worker (`data.malformed` for errors that are not Tabring's); `worker.dead`;
 * `config.invalid` for unknown options and options out of range, for a data set that the workers cannot recreate, and for workers on a
 * runtime without them (Node).
 */
export class DataLoader<S = Sample, B = Batch> implements AsyncIterable<B> {
  readonly dataset: Dataset<S>
  readonly batchSize: number
  readonly numWorkers: number
  readonly #options: DataLoaderOptions<S, B>
  readonly #sampler: Sampler | undefined
  readonly #seed: number
  /** Of the next loop, unless the sampler has its own. */
  #epoch = 0
  /** Batches that the next loop leaves out if it is of this epoch. */
  #done = { epoch: 0, batches: 0 }
  #loop: { epoch: number; batches: number; sampler: unknown } | undefined
  #waitedMs = 0
  #workers: SampleWorkers | undefined

  constructor(dataset: Dataset<S>, options: DataLoaderOptions<S, B> = {}) {
    checkOptions('DataLoader', options, loaderOptions)
    checkDataset('DataLoader', dataset)
    const { batchSize = 1, numWorkers = 0, shuffle = false, sampler } = options
    const prefetchFactor = options.prefetchFactor ?? 2
    requireWhole('batchSize', batchSize, 1)
    requireWhole('numWorkers', numWorkers, 0)
    requireWhole('prefetchFactor', prefetchFactor, 1)
    if (shuffle && sampler)
      throw new DataError(
        'config.invalid',
        'DataLoader: shuffle and a sampler cannot be combined. Let the sampler shuffle.',
      )
    if (options.collateFn && options.dtypes)
      throw new DataError(
        'config.invalid',
        'DataLoader: collateFn and dtypes cannot be combined. Let collateFn choose the types.',
      )
    checkSampler(sampler)
    if (options.dtypes !== undefined) checkRecord('DataLoader', 'dtypes', options.dtypes)
    for (const name of ['worker', 'collateFn'] as const) {
      const given: unknown = options[name]
      const isFunction = given === undefined || typeof given === 'function'
      checkArgument('DataLoader', name, given, isFunction, 'a function')
    }
    const { prefetchFactor: given } = options
    const isUsed = numWorkers > 0 || (given ?? undefined) === undefined
    checkArgument('DataLoader', 'prefetchFactor', given, isUsed, 'left out without numWorkers')
    requirePinner(options.pinMemory)
    requireSwitch('shuffle', options.shuffle)
    requireSwitch('dropLast', options.dropLast)
    requireWhole('seed', options.seed ?? 0, 0)
    this.dataset = dataset
    this.batchSize = batchSize
    this.numWorkers = numWorkers
    this.#options = options
    this.#sampler = sampler
    this.#seed = options.seed ?? 0
  }

  /** Number of batches per epoch. */
  get length(): number {
    const samples = this.#sampler?.length ?? this.dataset.length
    const batches = samples / this.batchSize
    return this.#options.dropLast ? Math.floor(batches) : Math.ceil(batches)
  }

  /** Epoch of the current loop, or of the next one if there is none. */
  get epoch(): number {
    return this.#loop?.epoch ?? this.#nextEpoch
  }

  /**
   * How long the consumer waited for the newest batch. units: ms
   *
   * The `data` part of a step: together with the times of a program whose runs are awaited it adds up to the step.
   */
  get waitedMs(): number {
    return this.#waitedMs
  }

  /**
   * Sets the epoch of the next loop: the order of `shuffle`, of the sampler, and the draws of random transforms.
   *
   * Also calls the sampler's own `setEpoch` if it was called before, or if the sampler has no `indices`.
   */
  setEpoch(epoch: number): void {
    requireWhole('epoch', epoch, 0)
    this.#epoch = epoch
    const sampler = this.#sampler
    if (sampler && (sampler.chosenEpoch !== undefined || !sampler.indices))
      sampler.setEpoch?.(epoch)
  }

  /**
   * Returns the position of the current loop, or of the next one: the newest batch handed out counts as done, batches made in advance do
   * not.
   *
   * Call it after the step on that batch. A loop that was left early has ended: the next one is the next epoch.
   */
  stateDict(): DataLoaderState {
    const epoch = this.epoch
    const at = this.#loop ?? {
      epoch,
      batches: this.#doneOf(epoch),
      sampler: this.#sampler?.stateDict?.(),
    }
    return { ...at, settings: this.#settings }
  }

  /**
   * Makes the next loop resume at the saved position, with the same batches for any number of workers; later loops follow.
   *
   * It gives the rest of its epoch: nothing, if the last batch was done. `setEpoch` with the same epoch changes nothing; with another one,
   * that epoch starts at its first batch.
   * errors: `config.invalid` if seed or `shuffle` differ, or in the middle of an epoch `batchSize` or the number of samples; those of the
   * sampler.
   */
  loadStateDict(state: DataLoaderState): void {
    this.prepareLoad(state)()
  }

  /** @internal Checks a state as `loadStateDict` does; what it returns loads it. */
  prepareLoad(state: DataLoaderState): () => void {
    requireSameBatches(this.#settings, state)
    requireWhole("the state's epoch", state.epoch, 0)
    requireWhole("the state's batches", state.batches, 0)
    const isInside = (batches: number) => batches <= this.length
    const range = `at most ${this.length}, the loader's`
    checkNumber('DataLoader', "the state's batches", state.batches, isInside, range)
    const sampler = this.#sampler
    const loads =
      state.sampler !== undefined && sampler?.loadStateDict
        ? preparedLoads([[sampler as Required<Sampler>, state.sampler]])
        : []
    return () => {
      for (const load of loads) load()
      this.#loop = undefined
      this.#epoch = state.epoch
      this.#done = { epoch: state.epoch, batches: state.batches }
    }
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<B, void, void> {
    let asked = performance.now()
    const epoch = this.#nextEpoch
    // Before its order is asked for: a sampler may count how often it was.
    const sampler = this.#sampler?.stateDict?.()
    const batches = this.#batchesOf(epoch)
    const loop = { epoch, batches: this.#doneOf(epoch), sampler }
    this.#loop = loop
    this.#epoch = epoch + 1
    this.#done = { epoch: 0, batches: 0 }
    const { prefetchFactor = 2 } = this.#options
    const ahead = this.numWorkers * prefetchFactor
    const underWay: Promise<B>[] = []
    let next = loop.batches
    const launch = (count: number) => {
      while (next < batches.length && underWay.length < count) {
        const batch = this.#make(epoch, batches[next++])
        // It is awaited in its turn; until then its failure is not unhandled.
        batch.catch(() => undefined)
        underWay.push(batch)
      }
    }
    try {
      for (;;) {
        launch(Math.max(1, ahead))
        const oldest = underWay.shift()
        if (!oldest) return
        const batch = await oldest
        // Workers prepare the next batches while the caller trains on this one.
        launch(ahead)
        loop.batches++
        this.#waitedMs = performance.now() - asked
        yield batch
        asked = performance.now()
      }
    } finally {
      if (this.#loop === loop) this.#loop = undefined
      // The caller left the loop early, or an error did: nobody will see what is under way.
      const pinner = this.#options.pinMemory || undefined
      for (const batch of underWay)
        batch.then(
          (made) => pinner?.unpin(made as object),
          () => undefined,
        )
    }
  }

  /** @internal A loop without `await`. errors: `config.invalid`, always. */
  [Symbol.iterator](): never {
    throw new DataError(
      'config.invalid',
      'DataLoader: batches come one by one as promises. Write for await (const batch of loader).',
    )
  }

  /** Ends the workers; the next loop starts new ones. */
  close(): void {
    this.#workers?.close()
    this.#workers = undefined
  }

  get #nextEpoch(): number {
    return this.#sampler?.chosenEpoch ?? this.#epoch
  }

  get #settings(): DataLoaderState['settings'] {
    return {
      seed: this.#seed,
      shuffle: this.#options.shuffle ?? false,
      batchSize: this.batchSize,
      samples: this.#sampler?.length ?? this.dataset.length,
    }
  }

  #doneOf(epoch: number): number {
    return this.#done.epoch === epoch ? this.#done.batches : 0
  }

  #batchesOf(epoch: number): Uint32Array<ArrayBuffer>[] {
    const sampler = this.#sampler
    const { length } = this.dataset
    const order = sampler
      ? chosenIndices(sampler, epoch, length)
      : this.#options.shuffle
        ? permutation(this.#seed, epoch, length)
        : Uint32Array.from({ length }, (_, i) => i)
    return Array.from({ length: this.length }, (_, i) =>
      order.slice(i * this.batchSize, (i + 1) * this.batchSize),
    )
  }

  async #make(epoch: number, indices: Uint32Array<ArrayBuffer>): Promise<B> {
    const { collateFn, dtypes, pinMemory } = this.#options
    let batch: B
    if (this.numWorkers === 0) {
      const collate = collateFn ?? dtypes ?? {}
      batch = await makeBatch(this.dataset, collate, this.#seed, epoch, indices, 'DataLoader: ')
    } else {
      const made = await this.#startedWorkers().make(epoch, indices)
      batch = collateFn ? collateFn(made as S[]) : (made as B)
    }
    return pinMemory ? ((await pinMemory.pin(batch as object)) as B) : batch
  }

  #startedWorkers(): SampleWorkers {
    if (this.#workers) return this.#workers
    const { worker, collateFn, dtypes } = this.#options
    this.#workers = new SampleWorkers({
      count: Math.min(this.numWorkers, switchValue('maxWorkers') ?? this.numWorkers),
      start: () => startSampleWorker(worker),
      dataset: worker ? undefined : describeInner('DataLoader', this.dataset as Dataset<never>),
      length: this.dataset.length,
      isRaw: collateFn !== undefined,
      dtypes,
      seed: this.#seed,
    })
    return this.#workers
  }
}

/** errors: a TypeError for what is no sampler. */
function checkSampler(sampler: Sampler | undefined): void {
  const isSampler =
    sampler === undefined ||
    (isIterable(sampler) && Number.isSafeInteger(sampler.length) && sampler.length >= 0)
  checkArgument(
    'DataLoader',
    'sampler',
    sampler,
    isSampler,
    'indices that can be iterated, with length',
  )
}

/** The indices that a sampler has for an epoch. errors: `config.invalid` for others than the data set's, and for another number than its length. */
function chosenIndices(sampler: Sampler, epoch: number, length: number): Uint32Array<ArrayBuffer> {
  const given =
    sampler.indices && sampler.chosenEpoch === undefined ? sampler.indices(epoch) : sampler
  const indices: number[] = []
  for (const index of isIterable(given) ? (given as Iterable<number>) : Array.from(given)) {
    requireIndex('DataLoader: the sampler', index, length)
    indices.push(index)
    // It may never end.
    if (indices.length >= sampler.length + 1000) break
  }
  if (indices.length === sampler.length) return Uint32Array.from(indices)
  throw new DataError(
    'config.invalid',
    `DataLoader: the sampler's length is ${sampler.length}, but it has ${indices.length} indices. Let length be the number of indices of an epoch.`,
  )
}

function requireWhole(name: string, value: number, minimum: number): void {
  if (!Number.isSafeInteger(value) || value < minimum)
    throw new DataError(
      'config.invalid',
      `DataLoader: ${name} must be a whole number of at least ${minimum}, got ${quoted(value)}. Change ${name}.`,
    )
}

/** PyTorch's `pin_memory=True` would have to choose a device, which data sets know nothing of. */
function requirePinner(pinner: unknown): void {
  if (pinner === undefined || pinner === false) return
  if (typeof pinner === 'object' && pinner !== null && 'pin' in pinner && 'unpin' in pinner) return
  throw new DataError(
    'config.invalid',
    `DataLoader: pinMemory must be the uploads of a device, got ${kindOf(pinner)}. Write pinMemory: new StagedUploads((await defaultRuntime()).gpu), with the runtime that the program is compiled for.`,
  )
}

function requireSwitch(name: string, value: unknown): void {
  if (value === undefined || typeof value === 'boolean') return
  throw new DataError(
    'config.invalid',
    `DataLoader: ${name} must be true or false, got ${kindOf(value)}. Pass one of the two.`,
  )
}
