import { type AdapterFacts, type Gpu, openGpu } from '../../gpu/device.ts'
import { PipelineCache } from '../../gpu/pipeline.ts'
import type { KernelLimits } from '../../kernels/op.ts'
import {
  currentDevice,
  type Device,
  type DeviceSpec,
  device,
  formatDevice,
  type PlacedDevice,
  placedDevice,
  setCurrentDevice,
} from '../../util/device.ts'
import { TabringError } from '../../util/errors.ts'
import { isRecord } from '../../util/kind-of.ts'
import { loadPart } from '../../util/load-part.ts'
import { checkArgument } from '../../util/options.ts'
import { switchValue } from '../../util/switches.ts'
import { type ChosenDevice, chooseDevice } from './choose-device.ts'
import { referenceDevice } from './memory-device.ts'

/** A device with everything that its programs share. */
export class Runtime {
  readonly gpu: Gpu
  readonly pipelines: PipelineCache
  readonly limits: KernelLimits
  /** Kernel variants by key, settled before the first program is compiled; if empty, the fixed table applies. */
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
      ...(gpu.id.type === 'cpu' && { isWasm: true }),
      ...(gpu.device.features.has('subgroups') && { subgroupSizes: subgroupSizesOf(gpu) }),
    }
  }

  get device(): PlacedDevice {
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
 * The definitions of the ops as a device: programs run their f64 references, rounded to float32 after each op.
 *
 * Thousands of times slower than any other device; for tests and for inspecting values. A program runs here only if its author asked for it.
 */
export class ReferenceRuntime {
  readonly device = referenceDevice
  variants: Readonly<Record<string, string>> = {}
  /** WebGPU's default limits, so that a plan made here fits on any adapter. */
  readonly limits: KernelLimits = {
    maxInvocations: 256,
    workgroupMemoryBytes: 16_384,
    maxGroupsPerDimension: 65_535,
    isSoftware: true,
  }
  readonly facts: AdapterFacts = {
    vendor: 'tabring',
    architecture: 'reference',
    description: 'the plain references (slow)',
    isSoftware: true,
    hasF16: false,
    hasSubgroups: false,
    hasTimestamps: false,
  }
}

export type AnyRuntime = Runtime | ReferenceRuntime

const opened = new Map<string, Promise<AnyRuntime>>()
/** What was set; undefined: the switch decides, or else what is there. */
let defaultDevice: Device | undefined
let automatic: ChosenDevice | undefined

/** errors: a TypeError, naming `where`, for what is no open device. */
export function checkRuntime(where: string, runtime: AnyRuntime): void {
  const isRuntime = isRecord(runtime) && 'device' in runtime && 'limits' in runtime
  checkArgument(where, 'runtime', runtime, isRuntime, 'an open device, as runtimeOf() gives it')
}

/**
 * Returns the page's or worker's runtime on a device; opens it at the first call, and again after it was lost.
 *
 * `why`: the device was taken, for people. errors: `gpu.unavailable`.
 */
export function runtimeOf(spec: DeviceSpec, why?: string): Promise<AnyRuntime> {
  const target = placedDevice(spec)
  const key = formatDevice(target)
  const known = opened.get(key)
  if (known) return known
  const opening = openRuntime(target, why)
  opened.set(key, opening)
  const forget = () => opened.delete(key)
  opening.then((runtime) => {
    if (runtime instanceof Runtime) runtime.gpu.lost.then(forget)
  }, forget)
  return opening
}

/** Returns the runtime of the current WebGPU device. errors: `gpu.unavailable`. */
export const defaultRuntime = (): Promise<Runtime> => runtimeOf('webgpu') as Promise<Runtime>

/** Opens a device for the caller alone. `why`: it was taken, for people. errors: `gpu.unavailable`. */
export async function openRuntime({ type, index }: PlacedDevice, why = ''): Promise<AnyRuntime> {
  if (type === 'reference') return new ReferenceRuntime()
  if (type === 'webgpu') return new Runtime(await openGpu(index))
  const { openWasm } = await loadPart('the device cpu', () => import('../../gpu/wasm/open.ts'))
  return new Runtime(await openWasm(undefined, why))
}

/**
 * Returns the default device of `compile`: what `setDefaultDevice` or the switch `device` chose; else the current WebGPU device, or the CPU once it
 * is known that there is no GPU.
 */
export const getDefaultDevice = (): PlacedDevice => {
  const choice = switchValue('device')
  const type = choice === 'auto' ? (automatic?.type ?? 'webgpu') : choice
  return placedDevice(defaultDevice ?? type)
}

/** Opens the default device, and sees before whether there is a GPU. errors: `gpu.unavailable`. */
export async function defaultRuntimeOf(): Promise<AnyRuntime> {
  const isAutomatic = !defaultDevice && switchValue('device') === 'auto'
  if (isAutomatic) automatic ??= await chooseDevice('auto')
  return runtimeOf(getDefaultDevice(), isAutomatic ? automatic?.why : '')
}

/** Sets the default device, like torch.set_default_device. */
export function setDefaultDevice(spec: DeviceSpec): void {
  const { type, index = currentDevice() } = device(spec)
  defaultDevice = { type }
  if (type === 'webgpu') setCurrentDevice(index)
}

/** Makes a WebGPU device the current one; a device that is given elsewhere goes before it. errors: `config.invalid` for another type, or without an index. */
export function setDevice(spec: DeviceSpec): void {
  const { type, index } = device(spec)
  if (type !== 'webgpu') {
    throw new TabringError(
      'config.invalid',
      `gpu.setDevice: ${type} is not a WebGPU device. Call setDefaultDevice("${type}") to compute there.`,
    )
  }
  if (index === undefined) {
    throw new TabringError(
      'config.invalid',
      'gpu.setDevice: "webgpu" has no index. Pass a number, or "webgpu:1".',
    )
  }
  setCurrentDevice(index)
}
