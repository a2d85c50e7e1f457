import { type OpRun, runOp as runOpOn } from '../../src/check/run-op.ts'
import { openGpu } from '../../src/gpu/device.ts'
import { Runtime } from '../../src/graph/memory/runtime.ts'
import type { HostArray, Op, OpCall, Variant } from '../../src/kernels/op.ts'

/** One device for all specs of a page: destroying devices loses the instance on some hosts. */
let opened: Promise<Runtime> | undefined
export function testRuntime(): Promise<Runtime> {
  opened ??= openGpu().then((gpu) => new Runtime(gpu))
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
