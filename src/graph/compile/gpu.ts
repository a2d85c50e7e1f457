import { factsOf, findAdapters } from '../../gpu/device.ts'
import { currentDevice, type DeviceSpec, placedDevice } from '../../util/device.ts'
import { ArgumentTypeError, GpuError, TabringError } from '../../util/errors.ts'
import { kindOf } from '../../util/kind-of.ts'
import { checkNumber, isCount } from '../../util/options.ts'
import { setSwitches } from '../../util/switches.ts'
import { defaultRuntimeOf, runtimeOf, setDevice } from '../memory/default-runtime.ts'
import { ReferenceRuntime } from '../memory/runtime.ts'
import { isBenchmarking, setBenchmarking } from '../tune/benchmark.ts'

/** Properties of a WebGPU device. Browsers do not report its memory size. */
export interface DeviceProperties {
  /** Ends in "(software)" if the device computes on a CPU. */
  readonly name: string
  /** Its number when all devices are visible, as used in `visibleDevices`. */
  readonly physicalIndex: number
  readonly vendor: string
  readonly architecture: string
  readonly isSoftware: boolean
  readonly hasF16: boolean
  readonly hasSubgroups: boolean
  readonly hasTimestamps: boolean
  readonly maxBufferBytes: number
  readonly maxBindingBytes: number
  readonly maxInvocations: number
  readonly workgroupMemoryBytes: number
}

async function getDeviceProperties(spec: DeviceSpec = 'webgpu'): Promise<DeviceProperties> {
  const { type, index } = placedDevice(spec)
  if (type !== 'webgpu') {
    throw new TabringError(
      'config.invalid',
      `gpu: device properties exist for WebGPU devices only, not for ${type}. Pass "webgpu:0".`,
    )
  }
  const adapters = await findAdapters()
  const found = adapters[index]
  if (!found) {
    throw new GpuError(
      'gpu.unavailable',
      `gpu: expected a device index below ${adapters.length}, got ${index}. Choose an index below gpu.deviceCount().`,
    )
  }
  const { adapter, physicalIndex } = found
  const { vendor, architecture, description, ...facts } = factsOf(adapter)
  const { limits } = adapter
  const name = description || [vendor, architecture].filter(Boolean).join(' ') || 'WebGPU adapter'
  return {
    name: facts.isSoftware ? `${name} (software)` : name,
    physicalIndex,
    vendor,
    architecture,
    ...facts,
    maxBufferBytes: limits.maxBufferSize,
    maxBindingBytes: limits.maxStorageBufferBindingSize,
    maxInvocations: limits.maxComputeInvocationsPerWorkgroup,
    workgroupMemoryBytes: limits.maxComputeWorkgroupStorageSize,
  }
}

async function deviceCount(): Promise<number> {
  try {
    return (await findAdapters()).length
  } catch (error) {
    if (error instanceof GpuError) return 0
    throw error
  }
}

/**
 * Makes only these WebGPU devices visible, renumbered in this order: `'0,2'`; `''` hides all. Like CUDA_VISIBLE_DEVICES.
 *
 * Takes precedence over the page parameter `visibleDevices` and the launcher's flag. errors: `config.invalid` for an invalid list, a
 * TypeError for anything but a string; `graph.misuse` if a device is already open.
 */
function setVisibleDevices(devices: string): void {
  if (typeof devices !== 'string') {
    throw new ArgumentTypeError(
      `gpu.setVisibleDevices: expected a string like "0,2", got ${kindOf(devices)}. Put it in quotes.`,
    )
  }
  setSwitches({ visibleDevices: devices })
}

/**
 * Opens each adapter as `count` devices, which share its compute units but no memory: `webgpu:0` to `webgpu:<count - 1>` on one adapter.
 *
 * For code of several devices on a machine with one GPU. errors: `config.invalid` for anything but a whole number above 0; `graph.misuse` if a
 * device is already open.
 */
function logicalDevices(count: number): void {
  checkNumber('gpu.logicalDevices', 'count', count, isCount, 'a whole number above 0')
  setSwitches({ logicalDevices: count })
}

const runtimeInUse = (spec?: DeviceSpec) =>
  spec === undefined ? defaultRuntimeOf() : runtimeOf(spec)

/**
 * Resolves when a device has done all that was submitted to it; default: the one in use. `reference` has nothing under way.
 *
 * A step over several devices resolves with its outputs, while a device without outputs may still compute. errors: the device's first error.
 */
async function synchronize(spec?: DeviceSpec): Promise<void> {
  const runtime = await runtimeInUse(spec)
  if (runtime instanceof ReferenceRuntime) return
  await runtime.gpu.wait(runtime.gpu.queue.onSubmittedWorkDone())
}

/** Returns the bytes of all buffers that this page or worker holds on a device; default: the one in use. 0 for `reference`. */
async function memoryAllocated(spec?: DeviceSpec): Promise<number> {
  const runtime = await runtimeInUse(spec)
  return runtime instanceof ReferenceRuntime ? 0 : runtime.gpu.usedBytes
}

/**
 * Limits the bytes that each device of this page or worker may hold; null removes the limit.
 *
 * A buffer that would pass it is refused with `gpu.limit`. errors: `config.invalid` for anything but bytes above 0 or a text like "64MB".
 */
function setMemoryCap(cap: number | string | null): void {
  setSwitches({ memoryCap: cap })
}

/** The counterpart of torch.cuda and torch.backends.cudnn for WebGPU; functions that ask the browser are asynchronous. */
export const gpu = {
  /** Returns whether an adapter can be opened in this page or worker. */
  isAvailable: async (): Promise<boolean> => (await deviceCount()) > 0,
  /**
   * Returns the number of different visible adapters: two on a machine with two GPUs of unequal power, and one more if the browser also has
   * a software adapter. Each is multiplied by the switch `logicalDevices`.
   */
  deviceCount,
  /** Returns the browser's name for the device. errors: `gpu.unavailable`; `config.invalid` for another type. */
  getDeviceName: async (spec?: DeviceSpec): Promise<string> =>
    (await getDeviceProperties(spec)).name,
  getDeviceProperties,
  /** Returns whether shaders know float16 on the device. Tabring stores float16 and computes in float32 on all of them. errors: `gpu.unavailable`. */
  isFloat16Supported: async (spec?: DeviceSpec): Promise<boolean> =>
    (await getDeviceProperties(spec)).hasF16,
  currentDevice,
  logicalDevices,
  memoryAllocated,
  setDevice,
  setMemoryCap,
  setVisibleDevices,
  synchronize,
  /**
   * Use of tuned kernels (true) or the fixed table (false, the default). Tuned kernels may add in a different order on another
   * adapter.
   */
  get benchmark(): boolean {
    return isBenchmarking()
  },
  set benchmark(value: boolean) {
    setBenchmarking(value)
  },
}
