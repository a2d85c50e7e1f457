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
      'DataLoader: this runtime has no web workers (Node, for example). Use numWorkers: 0 here.',
      { cause: thrown },
    )
  }
}
