import { requiresGradient } from '../../graph/trace/backward.ts'
import { hookGradients } from '../../graph/trace/gradient-hooks.ts'
import { aliasOf, type Tensor, TracedTensor } from '../../graph/trace/tensor.ts'
import { activeTrace } from '../../graph/trace/trace.ts'
import { syncRanks } from '../../kernels/sync-ranks/sync-ranks.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { groupsOf } from '../mesh/groups-of.ts'

/** The two ways between tensors that all ranks have and those of which each rank has a part. source: Megatron-LM's g and f. */

/** The sum of what the ranks computed. Its gradient, which every rank has, is that of each summand. shape: as x */
export function sumOverRanks(x: Tensor, ranks: CollectiveGroup): Tensor {
  const trace = activeTrace('parallelizeModule')
  const { rank, size } = ranks
  const group = groupsOf(trace).numberOf(ranks)
  const attrs = { syncPoint: 'sum', rank, size, group, isOneLoss: true } as const
  const [sum] = trace.emit(syncRanks, [x.float().reshape([-1]).value], attrs)
  return new TracedTensor(sum).reshape(x.shape)
}

/** x, for parts of the ranks that each read all of it: its gradient is the sum of theirs. shape: as x */
export function copyToRanks(x: Tensor, ranks: CollectiveGroup): Tensor {
  if (!requiresGradient(activeTrace('parallelizeModule'), x.value)) return x
  const copy = aliasOf(x)
  hookGradients([copy], ([gradient]) => gradient && [sumOverRanks(gradient, ranks)])
  return copy
}
