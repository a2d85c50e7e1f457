import { DataError } from '../../util/errors.ts'

const ownWorker = () =>
  new Worker(new URL('./samples.worker.ts', import.meta.url), { type: 'module' })

/** Starts the loader's own worker, or the caller's. errors: `config.invalid` where there are no web workers, as in Node. */
export function startSampleWorker(start: () => Worker = ownWorker): Worker {
  try {
    return start()
  } catch (thrown) {
    if ('Worker' in globalThis) throw thrown
    throw new DataError(
      'config.invalid',
      'DataLoader: numWorkers must be 0 where there are no web workers, as in Node. Leave it out: samples are then read in this thread.',
      { cause: thrown },
    )
  }
}
