import { afterEach } from 'vitest'
import type { Batch } from '../../src/data/collate.ts'
import { DataLoader, type DataLoaderOptions } from '../../src/data/loader/data-loader.ts'
import type { Sample } from '../../src/data/samples.ts'
import { slowSamples } from './slow-samples.ts'

export const startSlow = () =>
  new Worker(new URL('./slow-samples.worker.ts', import.meta.url), { type: 'module' })

/** Closed after each test. */
export const toClose: { close(): void }[] = []
afterEach(() => {
  for (const loader of toClose.splice(0)) loader.close()
})

/** A loader of samples that take long to decode. */
export function slowLoader(numWorkers: number, indices: readonly number[], options: object = {}) {
  const loader = new DataLoader<Sample>(slowSamples, {
    numWorkers,
    worker: startSlow,
    sampler: Object.assign([...indices]),
    seed: 3,
    ...options,
  } as DataLoaderOptions<Sample, Batch>)
  toClose.push(loader)
  return loader
}
