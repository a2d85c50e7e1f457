import { type OpRun, runOp as runOpOn } from '../../src/check/run-op.ts'
import { openGpu } from '../../src/gpu/device.ts'
import { type AnyRuntime, ReferenceRuntime, Runtime } from '../../src/graph/memory/runtime.ts'
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

/** The device where values are held to PyTorch's: WebGPU in a page; in Node, which has none, the references of the ops. */
export const valuesRuntime = async (): Promise<AnyRuntime> =>
  typeof document === 'undefined' ? new ReferenceRuntime() : await testRuntime()

/** Throws what the device has reported since the last call. */
export async function checkValuesRuntime(): Promise<void> {
  const runtime = await valuesRuntime()
  if ('gpu' in runtime) runtime.gpu.check()
}
