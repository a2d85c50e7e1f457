import { GpuError } from '../../util/errors.ts'
import { bytesOf } from '../../util/shape.ts'
import type { Prepared } from '../plan/prepare.ts'
import { formatCall } from '../trace/format-call.ts'
import { type StoredLeaf, sharesMemory } from '../trace/value.ts'

/** The device has no room for a program that needs `bytes` beside parameters and optimizer state. */
export const outOfMemory = (bytes: number): GpuError =>
  new GpuError(
    'gpu.limit',
    `device: the program needs ${bytes} bytes in addition to parameters and optimizer state, which are not available. Use a smaller batch, or checkpoint() parts of the model.`,
  )

/** Adds to an error what the device had no room for, and the largest tensors of the program; any other error as it is. */
export function namingLargest(error: unknown, prepared: Prepared): unknown {
  if (!(error instanceof GpuError) || error.code !== 'gpu.limit') return error
  const text = `${error.message} Its largest tensors: ${largestOf(prepared).join(', ')}.`
  return new GpuError(error.code, text, { cause: error })
}

/** Results of ops, inputs, and what outlives the program. A tensor in a bucket counts as part of that. */
function largestOf({ nodes, trace, inputs, plan, fixed }: Prepared): string[] {
  const bytesByName = new Map<string, number>()
  for (const node of nodes) {
    const own = node.outputs.filter((value) => fixed.get(value)?.kind !== 'pool')
    if (!sharesMemory(node.op) && own.length > 0)
      bytesByName.set(
        formatCall(node, trace),
        own.reduce((sum, { type }) => sum + bytesOf(type), 0),
      )
  }
  const inBuckets = new Set<StoredLeaf>(trace.updates.flatMap(({ bucket }) => bucket.parameters))
  for (const [name, type] of Object.entries(inputs)) bytesByName.set(`input ${name}`, bytesOf(type))
  for (const { bindings } of plan.dispatches)
    for (const { place, sizeBytes } of bindings) {
      if (place.kind === 'pool') bytesByName.set(`"${place.pool.label}"`, place.pool.elements * 4)
      if (place.kind === 'stored' && !inBuckets.has(place.tensor))
        bytesByName.set(place.tensor.title, sizeBytes)
    }
  const sorted = [...bytesByName].sort(([, a], [, b]) => b - a)
  const [largest] = sorted
  return sorted
    .filter(([, bytes]) => bytes > largest[1] / 100)
    .slice(0, 6)
    .map(([name, bytes]) => `${name} with ${bytes} bytes`)
}
