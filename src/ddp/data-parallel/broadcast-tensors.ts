import type { StoredTensor } from '../../graph/trace/stored-tensor.ts'
import type { CollectiveOptions } from '../../peer/collective/collectives.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { gatherJson } from '../../peer/group/gather-json.ts'
import { PeerError } from '../../util/errors.ts'
import { firstDifference } from '../../util/first-difference.ts'
import { isOf, isTexts } from '../../util/kind-of.ts'
import { formatShape } from '../../util/shape.ts'

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
    if (isOf(data, Int32Array)) bits.set(data, start)
    else packed.set(data, start)
    start += tensor.count
  }
  await group.broadcast(packed, 0, options)
  start = 0
  for (const tensor of tensors) {
    const array = tensor.dtype === 'i32' ? bits : packed
    tensor.receive(array.slice(start, start + tensor.count))
    start += tensor.count
  }
}

/**
 * The same, of tensors whose names, types and shapes are compared first: `where` is what errors begin with. All ranks call it.
 *
 * errors: `peer.mismatch`, the same on all ranks, naming the first that differs; the group's.
 */
export async function broadcastModel(
  where: string,
  group: CollectiveGroup,
  tensors: readonly StoredTensor[],
): Promise<void> {
  if (group.size === 1) return
  const own = tensors.map(({ name, dtype, shape }) => `"${name}" ${dtype}${formatShape(shape)}`)
  const received = await gatherJson(where, group, own, isTexts)
  const difference = firstDifference(received, 'nothing', group.ranks)
  if (!difference) return broadcastTensors(group, tensors, { label: where })
  throw new PeerError(
    'peer.mismatch',
    `${where}: ranks have different models: ${difference.text}. Create the same model on all ranks.`,
  )
}
