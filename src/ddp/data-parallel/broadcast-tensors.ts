import type { StoredTensor } from '../../graph/trace/stored-tensor.ts'
import type { CollectiveOptions } from '../../peer/collective/collectives.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'

/** Copies rank 0's contents of the tensors to all ranks, as one message. errors: the group's. */
export async function broadcastTensors(
  group: CollectiveGroup,
  tensors: readonly StoredTensor[],
  options: CollectiveOptions & { readonly label: string },
): Promise<void> {
  const packed = new Float32Array(tensors.reduce((sum, { count }) => sum + count, 0))
  // Integers travel as their bits.
  const bits = new Int32Array(packed.buffer)
  let start = 0
  for (const tensor of tensors) {
    const data = await tensor.read()
    if (data instanceof Int32Array) bits.set(data, start)
    else packed.set(data, start)
    start += tensor.count
  }
  await group.broadcast(packed, 0, options)
  start = 0
  for (const tensor of tensors) {
    const array = tensor.dtype === 'i32' ? bits : packed
    tensor.assign(array.slice(start, start + tensor.count))
    start += tensor.count
  }
}
