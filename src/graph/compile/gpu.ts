import { factsOf, findAdapters } from '../../gpu/device.ts'
import { currentDevice, type DeviceSpec, placedDevice } from '../../util/device.ts'
import { ArgumentTypeError, GpuError, TabringError } from '../../util/errors.ts'
import { setSwitches } from '../../util/switches.ts'
import { setDevice } from '../memory/runtime.ts'
import { isBenchmarking, setBenchmarking } from '../tune/benchmark.ts'

/** What a WebGPU device is and may do. Browsers tell no memory size. */
export interface DeviceProperties {
  /** Ends in "(software)" where a CPU computes. */
  readonly name: string
  /** Its number while all devices are visible: what `visibleDevices` calls it. */
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
  if (type === 'cpu') {
    throw new TabringError(
      'config.invalid',
      'gpu: expected a WebGPU device, got cpu. Choose one that gpu.deviceCount() counts.',
    )
  }
  const adapters = await findAdapters()
  const found = adapters[index]
  if (!found) {
    throw new GpuError(
      'gpu.unavailable',
      `gpu: expected a device below ${adapters.length}, got ${index}. Choose one that gpu.deviceCount() counts.`,
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
 * Shows programs only the WebGPU devices of these numbers, numbered anew in this order: `'0,2'`; `''` hides all. As CUDA_VISIBLE_DEVICES.
 *
 * Goes before the page parameter `visibleDevices` and the launcher's flag. errors: `config.invalid` for anything but such a text,
 * a TypeError for what is no text at all; `graph.misuse` when a device was opened before.
 */
function setVisibleDevices(devices: string): void {
  if (typeof devices !== 'string') {
    throw new ArgumentTypeError(
      `gpu.setVisibleDevices: expected a text like "0,2", got the ${typeof devices} ${String(devices)}. Put it in quotes.`,
    )
  }
  setSwitches({ visibleDevices: devices })
}

/** WebGPU as torch.cuda and torch.backends.cudnn are for CUDA; what asks the browser is asynchronous here. */
export const gpu = {
  /** Whether an adapter can be opened in this page or worker. */
  isAvailable: async (): Promise<boolean> => (await deviceCount()) > 0,
  /**
   * How many adapters differ and are visible: with two GPUs of unequal power two, and one more where the browser has a software adapter
   * beside them. Each counts as often as the switch `logicalDevices` says.
   */
  deviceCount,
  /** The browser's words for the device. errors: `gpu.unavailable`; `config.invalid` for the CPU. */
  getDeviceName: async (spec?: DeviceSpec): Promise<string> =>
    (await getDeviceProperties(spec)).name,
  getDeviceProperties,
  /** Whether shaders of the device compute with float16 themselves; where not, float16 is a way of storing alone. errors: `gpu.unavailable`. */
  isFloat16Supported: async (spec?: DeviceSpec): Promise<boolean> =>
    (await getDeviceProperties(spec)).hasF16,
  currentDevice,
  setDevice,
  setVisibleDevices,
  /** Tuned kernels (true) or the fixed table (false, the default). Tuned ones may add in another order on another adapter. */
  get benchmark(): boolean {
    return isBenchmarking()
  },
  set benchmark(value: boolean) {
    setBenchmarking(value)
  },
}
