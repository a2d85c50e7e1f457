import type { Op } from '../../kernels/op.ts'
import type { ModuleBuffer } from '../trace/module-buffer.ts'
import type { GraphNode } from '../trace/value.ts'
import { storageOf } from '../trace/value.ts'

/** Reads what nodes change in place of modules' buffers, and returns what puts it back. cost: a readback for each buffer. */
export async function keepBuffers(nodes: readonly GraphNode[]): Promise<() => void> {
  const changed = new Set<ModuleBuffer>()
  for (const { op, inputs } of nodes) {
    for (const at of (op as Op).updates ?? []) {
      const { leaf } = storageOf(inputs[at])
      if (leaf?.kind === 'buffer') changed.add(leaf.buffer as ModuleBuffer)
    }
  }
  const kept = await Promise.all(
    [...changed].map(async (buffer) => [buffer, await buffer.read()] as const),
  )
  return () => {
    for (const [buffer, data] of kept) buffer.receive(data)
  }
}
