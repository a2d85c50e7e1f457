import { setSwitches, switchValue } from '../util/switches.ts'

/**
 * How many threads the device `cpu` computes on, like torch.get_num_threads: what was set, or as many as the machine has cores.
 *
 * A page that is not isolated from other origins has one, whatever is set.
 */
export const getNumThreads = (): number =>
  switchValue('numThreads') ?? cores()

/** Of the machine, or as many as this process may use. */
function cores(): number {
  if (typeof navigator === 'object') return navigator.hardwareConcurrency
  return process.getBuiltinModule('node:os').availableParallelism()
}

/**
 * Sets how many threads the device `cpu` of this page, worker or process computes on, like torch.set_num_threads. Results do not depend on it.
 *
 * `count`: 1 to 64. One that is open has no more threads than it began with. errors: `config.invalid`.
 */
export const setNumThreads = (count: number): void => setSwitches({ numThreads: count })
