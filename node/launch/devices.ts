import { availableParallelism } from 'node:os'
import { TabringError } from '../../src/util/errors.ts'
import { visibleNumbers } from '../../src/util/visible-devices.ts'
import { type ProbedAdapter, probeAdapters } from '../adapter.ts'
import type { TabBrowser } from '../tab.ts'
import type { TabChoice } from './flags.ts'

/** How many of `adapters` are GPUs, each as many times as the switch `logicalDevices` says, that `visibleDevices` leaves visible. */
export function countGpus(
  adapters: readonly ProbedAdapter[],
  { visibleDevices, logicalDevices = 1 }: VisibleDevices,
): number {
  const devices = adapters.flatMap((one) => Array.from({ length: logicalDevices }, () => one))
  return visibleNumbers(visibleDevices, devices.length).filter(
    (number) => !devices[number].isSoftware,
  ).length
}

/** The values of these switches. */
export interface VisibleDevices {
  visibleDevices: string | null
  logicalDevices?: number
}

/**
 * Returns how many tabs `--nproc-per-node` means on this machine, at most `maxTabs`.
 *
 * `openBrowser` is called where GPUs count. GPUs that the switches leave out do not count.
 * errors: `gpu.unavailable` for `gpu` where there is none.
 */
export async function countTabs(
  tabs: number | TabChoice,
  openBrowser: () => Promise<TabBrowser>,
  { maxTabs = Number.POSITIVE_INFINITY, ...visible }: { maxTabs?: number } & VisibleDevices,
): Promise<number> {
  if (typeof tabs === 'number') return tabs
  const gpus = tabs === 'cpu' ? 0 : countGpus(await probeAdapters(await openBrowser()), visible)
  if (tabs === 'gpu' && gpus === 0) {
    throw new TabringError(
      'gpu.unavailable',
      '--nproc-per-node gpu: the browser found no GPU that it can use. Pass a number, or cpu.',
    )
  }
  return Math.min(maxTabs, gpus || availableParallelism())
}
