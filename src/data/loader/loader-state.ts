import { DataError } from '../../util/errors.ts'
import { quoted } from '../../util/kind-of.ts'
import { checkRecord } from '../../util/options.ts'

/** Position of a DataLoader as plain values, for checkpoints. */
export interface DataLoaderState {
  /** Epoch of the current loop, or of the next one if there is none. */
  readonly epoch: number
  /** Number of batches of that epoch that were handed out. */
  readonly batches: number
  /** Settings that determine the order and the batches; they must be equal in the loader that resumes. */
  readonly settings: {
    readonly seed: number
    readonly shuffle: boolean
    readonly batchSize: number
    readonly samples: number
  }
  /** State of the sampler at the start of that epoch, if it has one. */
  readonly sampler?: unknown
}

/** errors: `config.invalid` when the state is of a loader with another order, or, in the middle of an epoch, of one that makes other batches. */
export function requireSameBatches(
  own: DataLoaderState['settings'],
  state: Pick<DataLoaderState, 'settings' | 'batches'>,
): void {
  checkRecord('DataLoader', 'state', state)
  const { settings, batches } = state
  checkRecord('DataLoader', "the state's settings", settings)
  // Between epochs the batches may change: a run may continue on another number of ranks.
  const same = batches > 0 ? (['batchSize', 'samples'] as const) : []
  for (const name of ['seed', 'shuffle', ...same] as const)
    if (settings[name] !== own[name])
      throw new DataError(
        'config.invalid',
        `DataLoader: the state's ${name} must be ${own[name]}, got ${quoted(settings[name])}. Create the loader like that of the saved run${batches > 0 ? ', or load a state that was saved between epochs' : ''}.`,
      )
}
