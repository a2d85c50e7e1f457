/**
 * Data parallel training along one dimension of a mesh: ranks hold the same parameters, see other samples, and sum their gradients.
 *
 *               pp 0         pp 1
 *     dp 0    rank 0 ───── rank 1     a pipeline
 *               │ sums       │ sums
 *     dp 1    rank 2 ───── rank 3     a pipeline with other samples
 *
 * What DistributedDataParallel does for a whole model on one device, this does for models that are split otherwise too: the sums are
 * collectives inside a step, of whatever parameters its part has.
 * bytes: each rank sends 2 (N-1)/N of its parameters once a step, however many micro-batches there are.
 * source: torch.distributed._composable.replicate.
 */

import { broadcastModel } from '../../ddp/data-parallel/broadcast-tensors.ts'
import { getProcessGroup } from '../../distributed/group/default-group.ts'
import { activeTrace } from '../../graph/trace/trace.ts'
import { checkModule, type Module } from '../../nn/module.ts'
import { TabringError } from '../../util/errors.ts'
import { checkOptions } from '../../util/options.ts'
import { formatShape } from '../../util/shape.ts'
import { checkMesh, type DeviceMesh } from '../mesh/device-mesh.ts'
import { groupsOf, joinsStep } from '../mesh/groups-of.ts'
import { whileSharing } from '../mesh/while-sharing.ts'

export interface ReplicateOptions {
  /** The ranks: a mesh of one dimension, such as `mesh.get('dp')`. Default: all ranks of the default group. */
  readonly mesh?: DeviceMesh
}

/**
 * Makes a module's parameters replicas over ranks, in place, and returns it: they begin with the values of the mesh's first rank, and their
 * gradients are means over the ranks. Call it before `compile`.
 *
 * The loss of a step is this rank's. To weigh ranks by their samples, pass `gradientWeight` to `run` (the ranks' must add up to 1).
 * errors: `config.invalid` for a mesh of several dimensions; `graph.misuse` for parameters that are shared already; `peer.*`.
 */
export async function replicate<M extends Module>(
  module: M,
  options: ReplicateOptions = {},
): Promise<M> {
  checkModule('replicate', module)
  const { mesh } = checkOptions('replicate', options, { mesh: true })
  if (mesh !== undefined) checkMesh('replicate', mesh)
  if (mesh && mesh.shape.length !== 1) {
    throw new TabringError(
      'config.invalid',
      `replicate: mesh must have one dimension, got ${formatShape(mesh.shape)}. Pass mesh.get(name).`,
    )
  }
  const group = mesh?.getGroup() ?? getProcessGroup('replicate')
  const parameters = module.parameters()
  const taken = parameters.find(({ meanOver }) => meanOver > 1)
  if (taken) {
    throw new TabringError(
      'graph.misuse',
      `replicate: ranks share ${taken.title} already. Call it once; for replicas of shards call fullyShard with a mesh of two dimensions.`,
    )
  }
  return whileSharing('replicate', parameters, async () => {
    const buffers = module.buffers()
    await broadcastModel('replicate', group, [...parameters, ...buffers])
    for (const buffer of buffers) buffer.holder = { ranks: group, root: 0 }
    for (const parameter of parameters) {
      parameter.replicatedBy = group
      parameter.meanOver = group.size
    }
    module.registerForwardPreHook(joinsStep(group))
    module.registerForwardPreHook(() => {
      const trace = activeTrace('forward')
      groupsOf(trace)
      trace.sampleRank = group.rank
      return undefined
    })
    return module
  })
}
