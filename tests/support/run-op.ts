import { type OpRun, runOp as runOpOn } from '../../src/check/run-op.ts'
import { type Gpu, openGpu } from '../../src/gpu/device.ts'
import { PipelineCache } from '../../src/gpu/pipeline.ts'
import type { HostArray, KernelLimits, Op, OpCall, Variant } from '../../src/kernels/op.ts'

/** One device for all specs of a page: destroying devices loses the instance on some hosts. */
let opened: Promise<{ gpu: Gpu; pipelines: PipelineCache }> | undefined
export function testGpu() {
  opened ??= openGpu().then((gpu) => ({ gpu, pipelines: new PipelineCache(gpu) }))
  return opened
}

export const limitsOf = (gpu: Gpu): KernelLimits => ({
  maxInvocations: gpu.limits.maxComputeInvocationsPerWorkgroup,
  workgroupMemoryBytes: gpu.limits.maxComputeWorkgroupStorageSize,
  maxGroupsPerDimension: gpu.limits.maxComputeWorkgroupsPerDimension,
  isSoftware: gpu.facts.isSoftware,
})

/** Runs one variant of an op on the test device. */
export const runOp = async <A>(
  op: Op<A>,
  variant: Variant<A>,
  call: OpCall<A>,
  inputs: readonly HostArray[],
  scalars: readonly number[] = [],
): Promise<OpRun> => runOpOn(await testGpu(), op, variant, call, inputs, scalars)
