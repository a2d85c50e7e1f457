import { type ExchangeSettings, Unsettled } from '../../graph/trace/exchange.ts'
import type { AlgorithmChoice } from '../../peer/algorithms/algorithm-choice.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { firstBucketBytesFor, maxFirstBytes } from './bucket-size.ts'

/** Up to which size sums go inside machines first, and which machine each rank counts to; 0 and none for sums over all ranks alone. */
export interface OrderOfSums {
  readonly hierarchicalMaxBytes: number
  readonly machines: readonly number[]
}

export interface RingOptions
  extends Pick<ExchangeSettings, 'findsUnused' | 'overlaps' | 'averagesOutputs'> {
  /** Undefined where it follows from the cap of the others. */
  readonly firstBucketCapBytes: number | undefined
}

/** How a model's gradients are cut, and how they travel: as chosen, as measured, or as a saved run had it. */
export class RingSettings implements ExchangeSettings {
  readonly findsUnused: boolean
  readonly overlaps: boolean
  readonly averagesOutputs: boolean
  /** Choice of the caller, or of the run that is resumed, for the first bucket. */
  firstCapBytes: number | undefined
  /** Once it is settled. */
  capBytes: number | undefined
  /** True if the caller has chosen it. */
  isCapGiven = false
  /** How the collectives of steps travel; default: by the group's choice. */
  choice: AlgorithmChoice | undefined
  /** True if the caller has chosen it. */
  isChoiceGiven = false
  readonly #group: CollectiveGroup
  readonly #ready: () => Promise<void>

  /** `ready`: resolves when all is settled. */
  constructor(group: CollectiveGroup, options: RingOptions, ready: () => Promise<void>) {
    this.findsUnused = options.findsUnused
    this.overlaps = options.overlaps
    this.averagesOutputs = options.averagesOutputs
    this.firstCapBytes = options.firstBucketCapBytes
    this.#group = group
    this.#ready = ready
  }

  get bucketCapBytes(): number {
    if (this.capBytes === undefined) throw new Unsettled('the size of buckets', this.#ready())
    return this.capBytes
  }

  get firstBucketCapBytes(): number {
    return Math.min(this.firstCap, this.bucketCapBytes)
  }

  /** For the first bucket, whatever that for the others is: as chosen, else PyTorch's, or by the measured size of the others. units: bytes. */
  get firstCap(): number {
    if (this.firstCapBytes !== undefined) return this.firstCapBytes
    return this.isCapGiven ? maxFirstBytes : firstBucketBytesFor(this.bucketCapBytes)
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
}
