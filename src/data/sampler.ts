import { defaultRanks } from '../util/default-ranks.ts'
import { DataError } from '../util/errors.ts'
import { isRecord, quoted } from '../util/kind-of.ts'
import {
  checkArgument,
  checkChoice,
  checkFlag,
  checkOptions,
  checkRecord,
} from '../util/options.ts'
import { refusePythonNames } from '../util/plain-callers.ts'
import { permutation } from '../util/random.ts'

/** Options of `DistributedSampler`, with the same meaning as in PyTorch. */
export interface DistributedSamplerOptions {
  /** Number of ranks that share the data set: PyTorch's `num_replicas`. Default: the size of the process group. */
  numReplicas?: number
  /** Default: this rank in the process group. */
  rank?: number
  /** Default true. */
  shuffle?: boolean
  /** Default 0; the same on every rank. */
  seed?: number
  /** True if to drop the tail that does not divide evenly, instead of repeating samples. Default false. */
  dropLast?: boolean
  /**
   * What to do if samples do not divide evenly: repeat the first ones, as PyTorch does, or let some ranks have one less, so that each
   * sample occurs once (for evaluation). Default 'duplicate'.
   */
  padding?: Padding
}

export type Padding = 'duplicate' | 'none'

/** How many indices a rank gets where nothing is repeated: the first ranks have one more. */
const unpadded = (length: number, numReplicas: number, rank: number): number =>
  Math.ceil(Math.max(0, length - rank) / numReplicas)

/**
 * How many indices each rank gets of a data set of `length`.
 *
 * source: `DistributedSampler.__init__` of PyTorch 1.13, whose arithmetic this repeats.
 */
export function samplesPerReplica(length: number, numReplicas: number, dropLast: boolean): number {
  const shared = dropLast && length % numReplicas !== 0 ? length - numReplicas : length
  return Math.max(0, Math.ceil(shared / numReplicas))
}

/**
 * Returns the part of `order` that belongs to one rank: padded by repetition from its start (or cut, with
 * `dropLast`) to a multiple of the ranks, then every `numReplicas`-th index from `rank` on.
 *
 * shape: [samplesPerReplica(order.length, numReplicas, dropLast)], or one less on some ranks without padding. An empty order gives an empty part.
 * source: `DistributedSampler.__iter__` of PyTorch 1.13. A padding longer than the order repeats it as often as needed.
 */
export function replicaIndices(
  order: ArrayLike<number>,
  numReplicas: number,
  rank: number,
  dropLast: boolean,
  padding: Padding = 'duplicate',
): Uint32Array<ArrayBuffer> {
  const part = new Uint32Array(
    padding === 'none' && !dropLast
      ? unpadded(order.length, numReplicas, rank)
      : samplesPerReplica(order.length, numReplicas, dropLast),
  )
  for (let i = 0; i < part.length; i++) part[i] = order[(rank + i * numReplicas) % order.length]
  return part
}

/** What is given, and the default group's numbers for what is not. */
function ranksOf({ numReplicas, rank }: DistributedSamplerOptions) {
  const group = defaultRanks()
  const size = numReplicas ?? group?.size
  const own = rank ?? group?.rank
  if (size !== undefined && own !== undefined) return { numReplicas: size, rank: own }
  throw new DataError(
    'config.invalid',
    `DistributedSampler: ${size === undefined ? 'numReplicas' : 'rank'} is missing, and there is no process group to take it from. Call initProcessGroup() first, or pass both numReplicas and rank.`,
  )
}

function requireInteger(name: string, value: number, minimum: number, below: number): void {
  if (!Number.isSafeInteger(value) || value < minimum || value >= below)
    throw new DataError(
      'config.invalid',
      `DistributedSampler: ${name} must be an integer from ${minimum} to ${below - 1}, got ${quoted(value)}. Change ${name}.`,
    )
}

const requireEpoch = (epoch: number) => requireInteger('epoch', epoch, 0, 2 ** 32)

/**
 * Gives one rank its indices of a data set for an epoch, like `torch.utils.data.DistributedSampler`.
 *
 * Same names (in camelCase), meanings and arithmetic. With `shuffle` the order is Tabring's own `permutation(seed, epoch, length)`. It does
 * not reproduce PyTorch's `randperm`, so the indices equal PyTorch's for an equal order, not for an equal seed. Call `setEpoch` before each
 * epoch; without it every epoch has the same order, unless the sampler is in a DataLoader, which then counts its loops.
 *
 * errors: `config.invalid` if `numReplicas` is below 1, `rank` is not below it, or one is missing without a process group.
 */
export class DistributedSampler implements Iterable<number> {
  readonly numReplicas: number
  readonly rank: number
  readonly shuffle: boolean
  readonly seed: number
  readonly dropLast: boolean
  readonly padding: Padding
  /** Number of indices of this rank per epoch. */
  readonly numSamples: number
  /** Number of indices of all ranks together, padding included. */
  readonly totalSize: number
  readonly #datasetLength: number
  #chosenEpoch: number | undefined

  constructor(dataset: { readonly length: number }, options: DistributedSamplerOptions = {}) {
    checkOptions('DistributedSampler', options, {
      numReplicas: true,
      rank: true,
      shuffle: true,
      seed: true,
      dropLast: true,
      padding: true,
    })
    const isSized = isRecord(dataset) || Array.isArray(dataset)
    checkArgument('DistributedSampler', 'dataset', dataset, isSized, 'a data set')
    checkFlag('DistributedSampler', 'shuffle', options.shuffle)
    checkFlag('DistributedSampler', 'dropLast', options.dropLast)
    checkChoice('DistributedSampler', 'padding', options.padding, ['duplicate', 'none'])
    const { shuffle = true, seed = 0, dropLast = false } = options
    const { numReplicas, rank } = ranksOf(options)
    const { padding = 'duplicate' } = options
    requireInteger('numReplicas', numReplicas, 1, 2 ** 32)
    requireInteger('rank', rank, 0, numReplicas)
    requireInteger('seed', seed, 0, 2 ** 53)
    requireInteger('dataset.length', dataset.length, 0, 2 ** 32)
    this.numReplicas = numReplicas
    this.rank = rank
    this.shuffle = shuffle
    this.seed = seed
    this.dropLast = dropLast
    this.#datasetLength = dataset.length
    this.padding = padding
    const isUneven = padding === 'none' && !dropLast
    const even = samplesPerReplica(dataset.length, numReplicas, dropLast)
    this.numSamples = isUneven ? unpadded(dataset.length, numReplicas, rank) : even
    this.totalSize = isUneven ? dataset.length : even * numReplicas
  }

  get epoch(): number {
    return this.#chosenEpoch ?? 0
  }

  /** The epoch set by `setEpoch`; undefined before its first call. */
  get chosenEpoch(): number | undefined {
    return this.#chosenEpoch
  }

  /** Sets the epoch, which determines the order of later iterations; must be the same on every rank. */
  setEpoch(epoch: number): void {
    requireEpoch(epoch)
    this.#chosenEpoch = epoch
  }

  /** Returns what determines the order of later iterations; `epoch` is null if none was set. */
  stateDict(): { epoch: number | null; seed: number } {
    return { epoch: this.#chosenEpoch ?? null, seed: this.seed }
  }

  /** Resumes in the epoch of a saved state. errors: `config.invalid` for a state with another seed, which would give another order. */
  loadStateDict(state: { epoch: number | null; seed: number }): void {
    this.prepareLoad(state)()
  }

  /** @internal Checks a state as `loadStateDict` does; what it returns loads it. */
  prepareLoad(state: { epoch: number | null; seed: number }): () => void {
    checkRecord('DistributedSampler', 'state', state)
    const { epoch, seed } = state
    if (seed !== this.seed)
      throw new DataError(
        'config.invalid',
        `DistributedSampler: the state's seed must be ${this.seed}, got ${quoted(seed)}. Create the sampler with the seed of the saved run.`,
      )
    if (epoch !== null) requireEpoch(epoch)
    return () => {
      this.#chosenEpoch = epoch ?? undefined
    }
  }

  /** Number of indices per rank and epoch: PyTorch's `len(sampler)`. */
  get length(): number {
    return this.numSamples
  }

  /** Returns this rank's indices of an epoch, by default the one that was set. shape: [numSamples]. */
  indices(epoch = this.epoch): Uint32Array<ArrayBuffer> {
    requireEpoch(epoch)
    const length = this.#datasetLength
    const order = this.shuffle
      ? permutation(this.seed, epoch, length)
      : Uint32Array.from({ length }, (_, i) => i)
    return replicaIndices(order, this.numReplicas, this.rank, this.dropLast, this.padding)
  }

  [Symbol.iterator](): Iterator<number> {
    return this.indices()[Symbol.iterator]()
  }
}

refusePythonNames(DistributedSampler)
