import { broadcastTensors } from '../../ddp/data-parallel/broadcast-tensors.ts'
import type { ModuleBuffer } from '../../graph/trace/module-buffer.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'

/**
 * Gives buffers the contents of the groups' first rank, there and in state dicts. In between, each rank's steps change its own, as in
 * PyTorch's FSDP.
 */
export async function shareBuffers(
  buffers: readonly ModuleBuffer[],
  groups: readonly CollectiveGroup[],
  label: string,
): Promise<void> {
  if (buffers.length === 0) return
  for (const group of groups) await broadcastTensors(group, buffers, { label })
  const ranks = groups.at(-1)!
  for (const buffer of buffers) buffer.holder = { ranks, root: 0 }
}
