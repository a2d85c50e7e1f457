import { type AdapterFacts, type Gpu, openGpu } from '../gpu/device.ts'
import { PipelineCache } from '../gpu/pipeline.ts'
import type { KernelLimits } from '../kernels/op.ts'
import { type Device, type DeviceSpec, device, formatDevice } from '../util/device.ts'
import { TabringError } from '../util/errors.ts'
import { cpuDevice } from './memory.ts'

/** A device with everything that programs on it share. */
export class Runtime {
  readonly gpu: Gpu
  readonly pipelines: PipelineCache
  readonly limits: KernelLimits
  /** Kernel variants by key, settled before the first program is compiled; empty means the fixed table. */
  variants: Readonly<Record<string, string>> = {}

  constructor(gpu: Gpu) {
    this.gpu = gpu
    this.pipelines = new PipelineCache(gpu)
    this.limits = {
      maxInvocations: gpu.limits.maxComputeInvocationsPerWorkgroup,
      workgroupMemoryBytes: gpu.limits.maxComputeWorkgroupStorageSize,
      maxGroupsPerDimension: gpu.limits.maxComputeWorkgroupsPerDimension,
      maxBindings: gpu.limits.maxStorageBuffersPerShaderStage,
      maxBufferBytes: Math.min(gpu.limits.maxBufferSize, gpu.limits.maxStorageBufferBindingSize),
      isSoftware: gpu.facts.isSoftware,
      hasF16: gpu.device.features.has('shader-f16'),
      ...(gpu.device.features.has('subgroups') && { subgroupSizes: subgroupSizesOf(gpu) }),
    }
  }

  get device(): Device {
    return this.gpu.id
  }

  get facts(): AdapterFacts {
    return this.gpu.facts
  }
}

/** The adapter's sizes; where it tells none, those that WebGPU allows. */
function subgroupSizesOf({ device: { adapterInfo } }: Gpu) {
  const { subgroupMinSize: smallest = 4, subgroupMaxSize: largest = 128 } = adapterInfo
  return { smallest, largest }
}

/**
 * The CPU as a device: programs run the ops' f64 references, rounded to float32 after each op.
 *
 * Thousands of times slower than any adapter, software ones included; for places without WebGPU and for looking at values. Nothing takes
 * it by itself: a program runs here when its author or the user said so.
 */
export class CpuRuntime {
  readonly device = cpuDevice
  variants: Readonly<Record<string, string>> = {}
  /** Those of WebGPU's defaults, so that a plan made here fits there. */
  readonly limits: KernelLimits = {
    maxInvocations: 256,
    workgroupMemoryBytes: 16_384,
    maxGroupsPerDimension: 65_535,
    isSoftware: true,
  }
  readonly facts: AdapterFacts = {
    vendor: 'tabring',
    architecture: 'cpu',
    description: 'the plain references on the CPU (slow)',
    isSoftware: true,
    hasF16: false,
    hasSubgroups: false,
    hasTimestamps: false,
  }
}

export type AnyRuntime = Runtime | CpuRuntime

const opened = new Map<string, Promise<AnyRuntime>>()
let defaultDevice: Device = { type: 'webgpu', index: 0 }
let currentIndex = 0

/**
 * The page's or worker's one runtime on a device; opens it at the first call, and anew after it was lost.
 *
 * errors: `gpu.unavailable`.
 */
export function runtimeOf(spec: DeviceSpec): Promise<AnyRuntime> {
  const target = device(spec)
  const key = formatDevice(target)
  const known = opened.get(key)
  if (known) return known
  const opening: Promise<AnyRuntime> =
    target.type === 'cpu'
      ? Promise.resolve(new CpuRuntime())
      : openGpu(target.index).then((gpu) => new Runtime(gpu))
  opened.set(key, opening)
  const forget = () => opened.delete(key)
  opening.then((runtime) => {
    if (runtime instanceof Runtime) runtime.gpu.lost.then(forget)
  }, forget)
  return opening
}

/** The runtime of the current WebGPU device. errors: `gpu.unavailable`. */
export const defaultRuntime = (): Promise<Runtime> => runtimeOf(currentIndex) as Promise<Runtime>

/** The device that `compile` takes when it is told none: the current WebGPU device, unless `setDefaultDevice` chose the CPU. */
export const getDefaultDevice = (): Device =>
  defaultDevice.type === 'cpu' ? defaultDevice : { type: 'webgpu', index: currentIndex }

/** As torch.set_default_device. The CPU is slow: ask whoever waits. */
export function setDefaultDevice(spec: DeviceSpec): void {
  defaultDevice = device(spec)
  if (defaultDevice.type === 'webgpu') currentIndex = defaultDevice.index
}

/** The index of the WebGPU device that programs take unless told. */
export const currentDevice = (): number => currentIndex

/** errors: `config.invalid` for the CPU, which is no WebGPU device. */
export function setDevice(spec: DeviceSpec): void {
  const target = device(spec)
  if (target.type === 'cpu') {
    throw new TabringError(
      'config.invalid',
      'gpu.setDevice: expected a WebGPU device, got cpu. Call setDefaultDevice("cpu") to leave the GPU.',
    )
  }
  currentIndex = target.index
}
