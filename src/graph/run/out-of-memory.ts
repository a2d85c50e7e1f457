import { GpuError } from '../../util/errors.ts'
import { bytesOf } from '../../util/shape.ts'
import type { Prepared } from '../plan/prepare.ts'
import { formatCall } from '../trace/format-call.ts'
import type { GraphNode } from '../trace/value.ts'

/** The device has no room for a program: names the ops with the largest results. */
export function outOfMemory({ nodes, trace }: Prepared, bytes: number): GpuError {
  const resultBytes = ({ outputs }: GraphNode) =>
    outputs.reduce((sum, { type }) => sum + bytesOf(type), 0)
  const largest = nodes
    .filter(({ op }) => !op.isView)
    .sort((a, b) => resultBytes(b) - resultBytes(a))
    .slice(0, 3)
    .map((node) => `${formatCall(node, trace)} with ${resultBytes(node)} bytes`)
  return new GpuError(
    'gpu.limit',
    `device: the program needs ${bytes} bytes in addition to its parameters, which are not available; the largest results are ${largest.join(', ')}. Use a smaller batch, or checkpoint() parts of the model.`,
  )
}
