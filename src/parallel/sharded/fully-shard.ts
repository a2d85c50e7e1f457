/**
 * Fully sharded data parallel training: every rank holds 1/N of each parameter, of its gradient and of the optimizer's state.
 *
 *     forward    gather layer 1 ─ compute 1 ─ free │ gather layer 2 ─ compute 2 ─ free │ ...
 *                                  gather layer 2 travels while layer 1 is computed
 *     backward   ... │ gather layer 2 ─ compute 2 ─ free ─ scatter gradients of 2 │ gather layer 1 ─ ...
 *     update     each rank updates its own parts
 *
 * A layer is a module for which `fullyShard` was called: its parameters are gathered together, right before its forward, and again before
 * backward reads them. Gradients are summed by a reduce-scatter, which travels during the rest of backward.
 * memory: parameters, gradients and state take 1/N, plus the whole parameters and gradients of one layer.
 * bytes: each rank sends (N-1)/N of the parameters 3 times a step: twice gathered, once as gradients; DDP sends 2 times.
 * source: torch.distributed.fsdp.fully_shard (FSDP2); Rajbhandari et al., "ZeRO", arXiv 1910.02054.
 */

import { broadcastModel } from '../../ddp/data-parallel/broadcast-tensors.ts'
import { getProcessGroup } from '../../distributed/group/default-group.ts'
import { Parameter } from '../../graph/trace/parameter.ts'
import { checkModule, type Module } from '../../nn/module.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { TabringError } from '../../util/errors.ts'
import { checkFlag, checkOptions } from '../../util/options.ts'
import { formatShape } from '../../util/shape.ts'
import { checkMesh, type DeviceMesh } from '../mesh/device-mesh.ts'
import { joinsStep } from '../mesh/groups-of.ts'
import { whileSharing } from '../mesh/while-sharing.ts'
import { ShardedParameter } from './sharded-parameter.ts'
import { type ParameterPlace, Unit } from './unit.ts'

export interface FullyShardOptions {
  /**
   * The ranks: a mesh of one dimension, such as `mesh.get('shard')`. Of two dimensions, the first holds replicas: parameters are divided
   * along the second, and gradients summed along both. Default: all ranks of the default group.
   */
  readonly mesh?: DeviceMesh
  /**
   * True if whole parameters are freed after forward and gathered again in backward. False keeps them in memory until backward has read
   * them, and saves a third of the bytes that are sent. Default true.
   */
  readonly reshardAfterForward?: boolean
}

const units = new WeakMap<Module, Unit>()

/**
 * Divides the parameters of a module over ranks, in place, and returns it. Call it for each layer, then for the whole model: each call takes
 * what no earlier one has taken. The model begins with the values of the mesh's first rank.
 *
 *     for (const block of model.transformer.h) await fullyShard(block)
 *     await fullyShard(model)
 *     const optimizer = new AdamW(model.parameters(), { lr: 1e-3 })
 *
 * Forward, `backward`, `clipGradNorm` and optimizers are used as on one rank, in a step from `compile`; the loss of a step is this rank's, and
 * gradients are means over the ranks. Parameters keep their `shape`; `count`, `read` and `grad` are of this rank's part. To weigh ranks by their samples, pass `gradientWeight` to `run` (they must add up to 1). `stateDict()` of
 * the module and of its optimizer gather the whole, with the keys and shapes of the undivided model: all ranks call them. `loadStateDict`
 * takes this rank's parts of a whole.
 * cost: see the picture above. errors: `config.invalid` for a mesh of three dimensions; `graph.misuse` for a module that is already divided
 * or that has no parameters left; `peer.*`.
 */
export async function fullyShard<M extends Module>(
  module: M,
  options: FullyShardOptions = {},
): Promise<M> {
  checkModule('fullyShard', module)
  const known = { mesh: true, reshardAfterForward: true } as const
  const { mesh, reshardAfterForward = true } = checkOptions('fullyShard', options, known)
  checkFlag('fullyShard', 'reshardAfterForward', reshardAfterForward)
  if (mesh !== undefined) checkMesh('fullyShard', mesh)
  if (mesh && mesh.shape.length > 2) {
    throw new TabringError(
      'config.invalid',
      `fullyShard: mesh must have one dimension, or two for replicas of shards, got ${formatShape(mesh.shape)}. Pass mesh.get(name).`,
    )
  }
  const replicas = mesh?.shape.length === 2 ? mesh.getGroup(0) : undefined
  const group = mesh ? mesh.getGroup(replicas ? 1 : 0) : getProcessGroup('fullyShard')
  // Errors name them.
  module.parameters()
  const places = placesIn(module)
  if (units.has(module) || places.size === 0) {
    const problem = units.has(module) ? 'is already sharded' : 'has no parameters left to shard'
    throw new TabringError(
      'graph.misuse',
      `fullyShard: ${module.constructor.name} ${problem}. Call it once for each layer, then once for the whole model.`,
    )
  }
  const taken = [...places.keys()].find(({ meanOver, sharedBy }) => meanOver > 1 || sharedBy)
  if (taken) {
    throw new TabringError(
      'graph.misuse',
      `fullyShard: ranks share ${taken.title} already, by replicate or parallelizeModule. For replicas of shards call fullyShard alone, with a mesh of two dimensions.`,
    )
  }
  return whileSharing('fullyShard', [...places.keys()], async () => {
    const buffers = module.buffers().filter(({ holder }) => !holder)
    const tensors = [...places.keys(), ...buffers]
    if (replicas) await broadcastModel('fullyShard', replicas, tensors)
    await broadcastModel('fullyShard', group, tensors)
    for (const buffer of buffers) buffer.holder = { ranks: group, root: 0 }
    const shards = await shardAll([...places.keys()], group, replicas)
    const unit = new Unit(group, replicas, shards, reshardAfterForward)
    for (const [parameter, found] of places) unit.takePlaces(shards.get(parameter)!, found)
    if (replicas) module.registerForwardPreHook(joinsStep(replicas))
    module.registerForwardPreHook(() => unit.open())
    module.registerForwardHook(() => unit.close())
    units.set(module, unit)
    return module
  })
}

/** The undivided parameters of a module and its submodules, with all properties that hold them. */
function placesIn(module: Module): Map<Parameter, ParameterPlace[]> {
  const places = new Map<Parameter, ParameterPlace[]>()
  for (const owner of module.modules()) {
    for (const [name, value] of Object.entries(owner)) {
      if (!(value instanceof Parameter) || value instanceof ShardedParameter) continue
      if (value.dividedBy) {
        throw new TabringError(
          'graph.misuse',
          `fullyShard: "${name}" of ${owner.constructor.name} is "${value.name}", which another call has sharded without it. Call fullyShard once, for a module that has all the layers that share a weight.`,
        )
      }
      const found = places.get(value) ?? []
      found.push({ owner, name })
      places.set(value, found)
    }
  }
  return places
}

/** This rank's part of each. */
async function shardAll(
  parameters: readonly Parameter[],
  group: CollectiveGroup,
  replicas: CollectiveGroup | undefined,
): Promise<Map<Parameter, ShardedParameter>> {
  const shards = new Map<Parameter, ShardedParameter>()
  for (const parameter of parameters) {
    const shard = new ShardedParameter(parameter, await parameter.read(), group)
    shard.replicatedBy = replicas
    shard.sameOn = parameter.sameOn
    shard.meanOver = group.size * (replicas?.size ?? 1)
    parameter.giveWayTo('fullyShard')
    shards.set(parameter, shard)
  }
  return shards
}
