import { type OpRun, runOp as runOpOn } from '../../src/check/run-op.ts'
import { openGpu } from '../../src/gpu/device.ts'
import { openWasm } from '../../src/gpu/wasm/open.ts'
import { Runtime } from '../../src/graph/memory/runtime.ts'
import type { HostArray, Op, OpCall, Variant } from '../../src/kernels/op.ts'

/** One device for all specs, WebGPU in a page and `cpu` in Node: destroying devices loses the instance on some hosts. */
let opened: Promise<Runtime> | undefined
export function testRuntime(): Promise<Runtime> {
  opened ??= (typeof document === 'undefined' ? openWasm() : openGpu()).then(
    (gpu) => new Runtime(gpu),
  )
  return opened
}

/** Runs one variant of an op on the test device. */
export const runOp = async <A>(
  op: Op<A>,
  variant: Variant<A>,
  call: OpCall<A>,
  inputs: readonly HostArray[],
  scalars: readonly number[] = [],
): Promise<OpRun> => runOpOn(await testRuntime(), op, variant, call, inputs, scalars)

/** Throws what the device has reported since the last call. */
export async function checkTestRuntime(): Promise<void> {
  const { gpu } = await testRuntime()
  gpu.check()
}
