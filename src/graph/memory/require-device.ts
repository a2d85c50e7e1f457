import { findAdapters } from '../../gpu/device.ts'
import { formatDevice, type PlacedDevice } from '../../util/device.ts'
import { GpuError } from '../../util/errors.ts'

/**
 * Refuses a WebGPU device that this page or worker does not have, as soon as it can be known: `model.to(1)` beside one adapter.
 *
 * Where there is no WebGPU at all nothing is said: what opens the device says why. cost: asks the browser, for devices other than the first.
 * errors: `gpu.unavailable`, beginning with `where`.
 */
export async function requireDevice(where: string, device: PlacedDevice): Promise<void> {
  // Another rank knows its own devices.
  if (device.type !== 'webgpu' || device.index === 0 || device.rank !== undefined) return
  const count = await findAdapters().then(
    (all) => all.length,
    () => 0,
  )
  if (count === 0 || device.index < count) return
  const there = count === 1 ? 'webgpu:0, the only one' : `webgpu:0 to webgpu:${count - 1}`
  throw new GpuError(
    'gpu.unavailable',
    `${where}: this tab has ${there}, but not ${formatDevice(device)}. Each tab counts its own devices from 0, not by rank: write [0] and .to(0) for PyTorch's device_ids=[rank] and .to(rank).`,
  )
}
