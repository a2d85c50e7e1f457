import { givenSwitches } from '../src/util/switches.ts'

/** Starts a compute worker that trains the demos, for `startCompute`. */
export const startWorker = (name: string): Worker =>
  new Worker(new URL('./compute.worker.ts', import.meta.url), { type: 'module', name })

/** Options of `LocalRanks`: each rank on a thread of the CPU, as much as one core, so that they share no device. */
export function onCores() {
  const given = givenSwitches()
  const switches = { ...given, code: { ...given.code, numThreads: 1 } }
  return { device: 'cpu', switches } as const
}
