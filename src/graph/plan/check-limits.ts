import type { Dispatch, KernelLimits, Operand } from '../../kernels/op.ts'
import { GpuError } from '../../util/errors.ts'
import { bytesOf, type TensorType } from '../../util/shape.ts'
import { formatCall, formatTypes } from '../trace/format-call.ts'
import type { Trace } from '../trace/trace.ts'
import type { LoweredNode } from './lower.ts'

/** errors: `gpu.limit`, naming the op, its shapes and what is too much, for a plan that the device cannot run. */
export function checkLimits(
  lowered: readonly LoweredNode[],
  limits: KernelLimits,
  trace?: Trace,
): void {
  const { maxBindings, maxBufferBytes, maxGroupsPerDimension } = limits
  for (const one of lowered) {
    for (const dispatch of one.lowering.dispatches) {
      if (maxBindings !== undefined && dispatch.bindings.length > maxBindings) {
        throw new GpuError(
          'gpu.limit',
          `${formatCall(one.node, trace)}: "${dispatch.label}" binds ${dispatch.bindings.length} tensors, but the device allows ${maxBindings}. Split the computation into ops with fewer inputs.`,
        )
      }
      if (dispatch.groups.some((count) => count > maxGroupsPerDimension)) {
        throw new GpuError(
          'gpu.limit',
          `${formatCall(one.node, trace)}: "${dispatch.label}" needs ${dispatch.groups.join(' x ')} workgroups, but the device allows ${maxGroupsPerDimension} per dimension. Use a smaller model or batch.`,
        )
      }
      if (maxBufferBytes !== undefined) checkTensors(one, dispatch, maxBufferBytes, trace)
    }
  }
}

function checkTensors(
  one: LoweredNode,
  dispatch: Dispatch,
  maxBufferBytes: number,
  trace: Trace | undefined,
): void {
  const typeOf = (operand: Operand): TensorType | undefined =>
    operand === 'scalars'
      ? undefined
      : 'in' in operand
        ? one.node.inputs[operand.in].type
        : 'out' in operand
          ? one.node.outputs[operand.out].type
          : one.lowering.scratch?.[operand.scratch]
  for (const { name, operand } of dispatch.bindings) {
    const type = typeOf(operand)
    const bytes = type ? bytesOf(type) : 0
    if (!type || bytes <= maxBufferBytes) continue
    throw new GpuError(
      'gpu.limit',
      `${formatCall(one.node, trace)}: ${name} is ${formatTypes([type])} of ${bytes} bytes, but the device allows ${maxBufferBytes} per tensor. Use a smaller model or batch.`,
    )
  }
}
