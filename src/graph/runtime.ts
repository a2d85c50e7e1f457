import { type Gpu, openGpu } from '../gpu/device.ts'
import { PipelineCache } from '../gpu/pipeline.ts'
import type { KernelLimits } from '../kernels/op.ts'

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
      isSoftware: gpu.facts.isSoftware,
    }
  }
}

let shared: Promise<Runtime> | undefined

/** The page's or worker's one runtime; opens the device at its first call. errors: `gpu.unavailable`. */
export function defaultRuntime(): Promise<Runtime> {
  shared ??= openGpu().then((gpu) => new Runtime(gpu))
  return shared
}
