import type { Tensor } from '../../graph/trace/tensor.ts'
import { activeTrace } from '../../graph/trace/trace.ts'
import { checkModule, Module } from '../../nn/module.ts'
import { clipped } from '../../util/clipped.ts'
import {
  type DeviceSpec,
  formatDevice,
  type PlacedDevice,
  placedDevice,
  sameDevice,
} from '../../util/device.ts'
import { TabringError } from '../../util/errors.ts'
import { quoted } from '../../util/kind-of.ts'
import { checkArgument, checkOptions, checkRecord } from '../../util/options.ts'
import { checkDim, gather, parallelApply, replicate, scatter } from './replicas.ts'

export interface DataParallelOptions {
  /** Devices that share each batch; the module is on the first. Empty: the module runs as it is. */
  readonly deviceIds: readonly DeviceSpec[]
  /** Where outputs are joined; default: the first device. */
  readonly outputDevice?: DeviceSpec
  /** The axis of the batch; default 0. */
  readonly dim?: number
}

/**
 * Divides each batch among devices of this tab, like torch.nn.DataParallel.
 *
 * In each step the first device copies the parameters to the others, takes the outputs, and sums the gradients into its own parameters,
 * which alone are updated. In DistributedDataParallel each rank sends its share of the gradients, and of the updated parameters. The module's
 * keys get the prefix `module.`. Scalar outputs become a vector of one for each device. On the CPU, and with one device or none, the module
 * itself runs.
 * errors: `device.mismatch` for a parameter or buffer that is not on `deviceIds[0]`; those of scatter, replicate and gather.
 */
export class DataParallel extends Module {
  readonly module: Module
  readonly #devices: readonly PlacedDevice[]
  readonly #outputDevice: PlacedDevice | undefined
  readonly #dim: number

  constructor(module: Module, options: DataParallelOptions) {
    super()
    checkModule('DataParallel', module)
    const {
      deviceIds,
      outputDevice,
      dim = 0,
    } = checkOptions('DataParallel', options, {
      deviceIds: true,
      outputDevice: true,
      dim: true,
    })
    if (!Array.isArray(deviceIds)) {
      throw new TabringError(
        'config.invalid',
        `DataParallel: expected deviceIds as a list of devices, got ${quoted(deviceIds)}. Pass { deviceIds: [0, 1] }.`,
      )
    }
    checkDim('DataParallel', dim)
    this.module = module
    this.#devices = deviceIds.map((spec) => placedDevice(spec))
    this.#outputDevice = outputDevice === undefined ? this.#devices[0] : placedDevice(outputDevice)
    this.#dim = dim
  }

  override forward(...args: [Tensor, ...unknown[]]): Tensor {
    return dataParallel(this.module, args, {
      deviceIds: this.#devices,
      outputDevice: this.#outputDevice,
      dim: this.#dim,
    }) as Tensor
  }
}

/** Runs a module once on several devices, like torch.nn.parallel.data_parallel; see `DataParallel`. */
export function dataParallel(
  module: Module,
  args: readonly unknown[],
  options: DataParallelOptions,
): unknown {
  checkModule('dataParallel', module)
  checkArgument(
    'dataParallel',
    'args',
    args,
    Array.isArray(args),
    "a list of the module's arguments",
  )
  checkRecord('dataParallel', 'options', options)
  const isList = Array.isArray(options.deviceIds)
  checkArgument('dataParallel', 'deviceIds', options.deviceIds, isList, 'a list of devices')
  const { deviceIds, outputDevice = deviceIds[0], dim = 0 } = options
  checkDim('dataParallel', dim)
  const trace = activeTrace('dataParallel')
  const forward = module.forward.bind(module) as (...given: readonly unknown[]) => unknown
  if (deviceIds.length === 0 || trace.device.type !== 'webgpu') return forward(...args)
  const first = placedDevice(deviceIds[0])
  for (const [key, tensor] of [...module.namedParameters(), ...module.namedBuffers()]) {
    const device = trace.deviceOf(tensor.value)!
    if (sameDevice(device, first)) continue
    throw new TabringError(
      'device.mismatch',
      `DataParallel: "${clipped(key)}" is on ${formatDevice(device)}, but deviceIds[0] is ${formatDevice(first)}. Move the module: await module.to('${formatDevice(first)}').`,
    )
  }
  const shares = scatter(args, deviceIds, dim)
  if (deviceIds.length === 1) return forward(...shares[0])
  const replicas = replicate(module, deviceIds.slice(0, shares.length))
  return gather(parallelApply(replicas, shares, dim), outputDevice, dim)
}
