import { permutation } from '../../util/random.ts'
import { type Batch, defaultCollate } from '../collate.ts'
import { describeInner } from '../datasets.ts'
import type { Dataset, Sample } from '../samples.ts'
import { makeBatch } from './make-batch.ts'
import { SampleWorkers } from './sample-workers.ts'

/** Chooses and orders samples; `DistributedSampler` is one. */
export interface Sampler extends Iterable<number> {
  readonly length: number
  setEpoch?(epoch: number): void
}

/** Puts batches where the device takes them up without a copy of the host's; `StagedUploads` is one. */
export interface BatchPinner {
  pin(batch: object): Promise<object>
  /** Takes the memory of a batch back that nobody will use. */
  unpin(batch: object): void
}

export interface DataLoaderOptions<S, B> {
  /** default 1 */
  batchSize?: number
  /** A new order each epoch. default false */
  shuffle?: boolean
  /** Instead of `shuffle`. */
  sampler?: Sampler
  /** Web workers that make batches ahead. default 0: batches are made when they are asked for, on this thread */
  numWorkers?: number
  /** Starts a worker of your own, whose file calls `serveSamples(dataset)`. Needed for data sets that cannot describe themselves. */
  worker?: () => Worker
  /** Batches that each worker makes ahead. default 2 */
  prefetch?: number
  /** Staged uploads: batches lie in memory that the GPU process shares before they are asked for. */
  pinMemory?: BatchPinner
  /** Leave out an incomplete last batch. default false */
  dropLast?: boolean
  /** Stacks samples, on this thread. default: defaultCollate, in the worker where there is one */
  collate?: (samples: S[]) => B
  /** Of order and random transforms; the same on every rank. default 0 */
  seed?: number
}

/**
 * Batches of a data set, as `torch.utils.data.DataLoader`: `for await (const batch of loader)` is one epoch.
 *
 * Order and contents depend on seed, epoch and the samples' numbers alone: never on the number of workers. Each loop is the next epoch,
 * from 0; `setEpoch` chooses another. Workers live until `close`.
 * errors: a sample's own, with its number and its worker's (`data.malformed` for errors that are not Tabring's); `worker.dead`;
 * `config.invalid` for a data set that the loader's workers cannot make anew; RangeError for options out of range.
 */
export class DataLoader<S = Sample, B = Batch> implements AsyncIterable<B> {
  readonly dataset: Dataset<S>
  readonly batchSize: number
  readonly numWorkers: number
  readonly #options: DataLoaderOptions<S, B>
  readonly #sampler: Sampler | undefined
  readonly #seed: number
  #epoch = 0
  #workers: SampleWorkers | undefined

  constructor(dataset: Dataset<S>, options: DataLoaderOptions<S, B> = {}) {
    const { batchSize = 1, numWorkers = 0, prefetch = 2, shuffle = false, sampler } = options
    requireWhole('batchSize', batchSize, 1)
    requireWhole('numWorkers', numWorkers, 0)
    requireWhole('prefetch', prefetch, 1)
    if (shuffle && sampler)
      throw new RangeError(
        'DataLoader: expected shuffle or a sampler, got both. Let the sampler shuffle.',
      )
    this.dataset = dataset
    this.batchSize = batchSize
    this.numWorkers = numWorkers
    this.#options = options
    this.#sampler = sampler
    this.#seed = options.seed ?? 0
  }

  /** Batches an epoch. */
  get length(): number {
    const samples = this.#sampler?.length ?? this.dataset.length
    const batches = samples / this.batchSize
    return this.#options.dropLast ? Math.floor(batches) : Math.ceil(batches)
  }

  /** The epoch of the next loop: the order of `shuffle`, the sampler's, and the draws of random transforms. */
  setEpoch(epoch: number): void {
    requireWhole('epoch', epoch, 0)
    this.#epoch = epoch
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<B, void, void> {
    const epoch = this.#epoch++
    const batches = this.#batchesOf(epoch)
    const { prefetch = 2 } = this.#options
    const ahead = this.numWorkers * prefetch
    const underWay: Promise<B>[] = []
    let next = 0
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
        // Workers go on while the caller trains on this one.
        launch(ahead)
        yield batch
      }
    } finally {
      // The caller left the loop early, or an error did: nobody will see what is under way.
      const { pinMemory } = this.#options
      for (const batch of underWay)
        batch.then(
          (made) => pinMemory?.unpin(made as object),
          () => undefined,
        )
    }
  }

  /** Ends the workers; the next loop starts new ones. */
  close(): void {
    this.#workers?.close()
    this.#workers = undefined
  }

  #batchesOf(epoch: number): Uint32Array<ArrayBuffer>[] {
    const sampler = this.#sampler
    sampler?.setEpoch?.(epoch)
    const { length } = this.dataset
    const order = sampler
      ? Uint32Array.from(sampler)
      : this.#options.shuffle
        ? permutation(this.#seed, epoch, length)
        : Uint32Array.from({ length }, (_, i) => i)
    return Array.from({ length: this.length }, (_, i) =>
      order.slice(i * this.batchSize, (i + 1) * this.batchSize),
    )
  }

  async #make(epoch: number, indices: Uint32Array<ArrayBuffer>): Promise<B> {
    const { collate, pinMemory } = this.#options
    let batch: B
    if (this.numWorkers === 0) {
      const stack = collate ?? (defaultCollate as unknown as (samples: S[]) => B)
      batch = await makeBatch(this.dataset, stack, this.#seed, epoch, indices, 'DataLoader: ')
    } else {
      const made = await this.#startedWorkers().make(epoch, indices)
      batch = collate ? collate(made as S[]) : (made as B)
    }
    return pinMemory ? ((await pinMemory.pin(batch as object)) as B) : batch
  }

  #startedWorkers(): SampleWorkers {
    if (this.#workers) return this.#workers
    const { worker, collate } = this.#options
    this.#workers = new SampleWorkers({
      count: this.numWorkers,
      start: worker ?? startOwnWorker,
      dataset: worker ? undefined : describeInner('DataLoader', this.dataset as Dataset<never>),
      length: this.dataset.length,
      isRaw: collate !== undefined,
      seed: this.#seed,
    })
    return this.#workers
  }
}

const startOwnWorker = () =>
  new Worker(new URL('./samples.worker.ts', import.meta.url), { type: 'module' })

function requireWhole(name: string, value: number, minimum: number): void {
  if (!Number.isSafeInteger(value) || value < minimum)
    throw new RangeError(
      `DataLoader: expected ${name} to be a whole number from ${minimum}, got ${value}. Correct it.`,
    )
}
