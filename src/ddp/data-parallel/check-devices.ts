import { requireDevice } from '../../graph/memory/require-device.ts'
import type { Module } from '../../nn/module.ts'
import {
  type DeviceSpec,
  device,
  formatDevice,
  placedDevice,
  sameDevice,
} from '../../util/device.ts'
import { ArgumentTypeError, TabringError } from '../../util/errors.ts'
import { kindOf } from '../../util/kind-of.ts'

/** The error of a device of the module's that this tab does not have; undefined where it has them all. */
export async function missingDevice(module: Module): Promise<Error | undefined> {
  const devices = new Map(
    [...module.parameters(), ...module.buffers()].flatMap(({ device: own }) =>
      own ? [[formatDevice(own), own]] : [],
    ),
  )
  for (const own of devices.values()) {
    try {
      await requireDevice('DistributedDataParallel', own)
    } catch (error) {
      return error as Error
    }
  }
  return undefined
}

/**
 * Checks PyTorch's `device_ids` and `output_device`: one WebGPU device, on which the module's parameters are; those that no device holds
 * yet are sent there.
 *
 * errors: `config.invalid` for several devices, for another type, for parameters elsewhere, and for another output device.
 */
export function checkDevices(
  module: Module,
  deviceIds: readonly DeviceSpec[] | null | undefined,
  outputDevice: DeviceSpec | null | undefined,
): void {
  const where = 'DistributedDataParallel'
  const refuse = (expected: string, got: string, remedy: string): never => {
    throw new TabringError(
      'config.invalid',
      `${where}: expected ${expected}, got ${got}. ${remedy}`,
    )
  }
  const ids = deviceIds ?? []
  if (!Array.isArray(ids)) {
    throw new ArgumentTypeError(
      `${where}: deviceIds must be an array of one device, got ${kindOf(deviceIds)}. Write [0].`,
    )
  }
  if (ids.length > 1)
    refuse(
      'deviceIds with one device, or none',
      `${ids.length}`,
      'A rank trains on one device: open a tab for each.',
    )
  if (ids.length === 0) {
    if (outputDevice !== undefined && outputDevice !== null)
      refuse(
        'no outputDevice without deviceIds',
        formatDevice(device(outputDevice)),
        'Outputs are on the device of the program: omit outputDevice.',
      )
    return
  }
  const target = placedDevice(ids[0])
  const named = formatDevice(target)
  if (target.type !== 'webgpu')
    refuse('a WebGPU device in deviceIds', named, 'Omit deviceIds for a module on the CPU.')
  for (const [key, parameter] of module.namedParameters()) {
    const { device: own } = parameter
    if (!own) void parameter.moveToDevice(target)
    else if (!sameDevice(own, target))
      refuse(
        `the module's parameters on ${named}, as in deviceIds`,
        `parameter "${key}" on ${formatDevice(own)}`,
        `Each tab numbers its own devices from 0, whatever its rank, so deviceIds is usually [0]: pass that, omit it, or move the module with to(${target.index}).`,
      )
  }
  if (outputDevice === undefined || outputDevice === null) return
  const output = placedDevice(outputDevice)
  if (!sameDevice(output, target))
    refuse(
      `outputDevice to be ${named}, as in deviceIds`,
      formatDevice(output),
      'Outputs are on the device of the program: omit outputDevice.',
    )
}
