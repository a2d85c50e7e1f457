import { type AdapterFacts, type Gpu, openGpu } from '../../gpu/device.ts'
import { PipelineCache } from '../../gpu/pipeline.ts'
import type { KernelLimits } from '../../kernels/op.ts'
import type { PlacedDevice } from '../../util/device.ts'
import { isRecord } from '../../util/kind-of.ts'
import { loadPart } from '../../util/load-part.ts'
import { checkArgument } from '../../util/options.ts'
import { referenceDevice } from './memory-device.ts'

/** A device with everything that its programs share. */
export class Runtime {
  readonly gpu: Gpu
  readonly pipelines: PipelineCache
  readonly limits: KernelLimits
  /** Kernel variants by key, settled before the first program is compiled; if empty, the fixed table applies. */
  variants: Readonly<Record<string, string>> = {}
  readonly #why: string

  /** `why`: it was taken, for people. */
  constructor(gpu: Gpu, why = '') {
    this.gpu = gpu
    this.#why = why
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
    return this.#why ? { ...this.gpu.facts, why: this.#why } : this.gpu.facts
  }
}

/** The adapter's sizes; without them, those that WebGPU allows. */
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

/** errors: a TypeError, naming `where`, for what is no open device. */
export function checkRuntime(where: string, runtime: AnyRuntime): void {
  const isRuntime = isRecord(runtime) && 'device' in runtime && 'limits' in runtime
  checkArgument(where, 'runtime', runtime, isRuntime, 'an open device, as runtimeOf() gives it')
}

/** Opens a device for the caller alone. `why`: it was taken, for people. errors: `gpu.unavailable`. */
export async function openRuntime({ type, index }: PlacedDevice, why = ''): Promise<AnyRuntime> {
  if (type === 'reference') return new ReferenceRuntime()
  if (type === 'webgpu') {
    if (why) console.warn(`tabring: WebGPU in software: ${why}`)
    return new Runtime(await openGpu(index), why)
  }
  const { openWasm } = await loadPart('the device cpu', () => import('../../gpu/wasm/open.ts'))
  return new Runtime(await openWasm(undefined, why))
}
