import { DataError } from '../../util/errors.ts'

/** Where a DataLoader stands: plain values, for a checkpoint. */
export interface DataLoaderState {
  /** Of the loop under way, else of the next one. */
  readonly epoch: number
  /** Batches of that epoch that were handed out. */
  readonly batches: number
  /** What the order and the cut into batches come from; the same in the loader that goes on. */
  readonly settings: {
    readonly seed: number
    readonly shuffle: boolean
    readonly batchSize: number
    readonly samples: number
  }
  /** The sampler's own state at the beginning of that epoch, where it has one. */
  readonly sampler?: unknown
}

/** errors: `config.invalid` when the state is of a loader with another order, or, in the middle of an epoch, of one that makes other batches. */
export function requireSameBatches(
  own: DataLoaderState['settings'],
  { settings, batches }: Pick<DataLoaderState, 'settings' | 'batches'>,
): void {
  // Between epochs other batches may follow: another number of ranks, each with its part, may go on.
  const same = batches > 0 ? (['batchSize', 'samples'] as const) : []
  for (const name of ['seed', 'shuffle', ...same] as const)
    if (settings[name] !== own[name])
      throw new DataError(
        'config.invalid',
        `DataLoader: the state's ${name} must be ${own[name]}, got ${settings[name]}. Make the loader as the run that was saved did${batches > 0 ? ', or load a state that was saved between epochs' : ''}.`,
      )
}
