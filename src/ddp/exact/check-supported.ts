import type { Memory } from '../../graph/memory/memory-device.ts'
import type { Module } from '../../nn/module.ts'
import { SyncBatchNorm } from '../../nn/sync-batch-norm.ts'
import { TabringError } from '../../util/errors.ts'

const maxParameters = 50e6
/**
 * On the host of each rank, at most: the value, two moments, the sum and a copy of it; value and moments again in each of two kept states; and
 * twice while it saves, in a state and in its file.
 */
const bytesPerParameter = 68

/** errors: `config.invalid` for a model that virtual workers cannot train, or that takes too much memory on the host. */
export function mustFit(model: Module): void {
  for (const [path, module] of model.namedModules()) {
    if (!(module instanceof SyncBatchNorm)) continue
    throw new TabringError(
      'config.invalid',
      `exact: "${path}" is a SyncBatchNorm, which needs all ranks within each forward pass, and virtual workers run one after the other. Use BatchNorm, or train without exact.`,
    )
  }
  const trained = model.parameters().filter(({ requiresGrad }) => requiresGrad)
  const parameters = trained.reduce((sum, { count }) => sum + count, 0)
  if (parameters <= maxParameters) return
  const gigabytes = ((parameters * bytesPerParameter) / 1e9).toFixed(1)
  throw new TabringError(
    'config.invalid',
    `exact: expected at most ${maxParameters / 1e6} million parameters that are trained, got ${Math.ceil(parameters / 1e6)} million, which take ${gigabytes} GB of host memory on each rank. Use a smaller model, or train without exact.`,
  )
}

/** errors: `config.invalid` for a device that was opened with the switch `relaxedMadd`. */
export function mustBeExact(memory: Memory): void {
  if (memory === 'host' || !memory.isRelaxed) return
  throw new TabringError(
    'config.invalid',
    'exact: the device cpu was opened with the switch relaxedMadd, with which results have other bits on other processors. Train without exact, or start again without the switch.',
  )
}
