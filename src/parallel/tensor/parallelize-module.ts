import { isRecord } from '../../util/kind-of.ts'
/**
 * Tensor parallel training: every rank computes a part of each layer, for the same samples.
 *
 *                    ┌ net1: half of the outputs ─ relu ─ net2: half of the inputs ┐
 *     x ─ copies to ─┤                                                             ├─ sum ─ + bias ─ y
 *                    └ net1: the other half ────── relu ─ net2: the other half ────┘
 *
 * A layer divided by its outputs (`ColwiseParallel`) and the next divided by its inputs (`RowwiseParallel`) need one sum in forward, of
 * the second's output, and one in backward, of the gradient by the first's input. What lies between them is divided too: activations,
 * attention heads.
 * memory: 1/N of the divided parameters, their gradients and their state, and 1/N of the activations between them.
 * bytes: each rank sends 2 (N-1)/N of the output of each pair in forward, and of its input in backward.
 * source: torch.distributed.tensor.parallel; Shoeybi et al., "Megatron-LM", arXiv 1909.08053.
 */

import { broadcastModel } from '../../ddp/data-parallel/broadcast-tensors.ts'
import { Parameter } from '../../graph/trace/parameter.ts'
import { checkModule, type Module } from '../../nn/module.ts'
import { clipped } from '../../util/clipped.ts'
import { TabringError } from '../../util/errors.ts'
import { checkArgument, checkRecord } from '../../util/options.ts'
import { formatShape } from '../../util/shape.ts'
import { checkMesh, type DeviceMesh } from '../mesh/device-mesh.ts'
import { joinsStep } from '../mesh/groups-of.ts'
import { whileSharing } from '../mesh/while-sharing.ts'
import type { ParallelStyle } from './styles.ts'

/** How layers are divided, by their paths in the module; `*` stands for one part of a path. */
export type ParallelizePlan = Readonly<Record<string, ParallelStyle>>

/**
 * Divides layers of a module over the ranks of a mesh, in place, and returns the module. It begins with the values of the mesh's first rank.
 *
 *     await parallelizeModule(model, mesh, { net1: new ColwiseParallel(), net2: new RowwiseParallel() })
 *     const optimizer = new AdamW(model.parameters(), { lr: 1e-3 })
 *
 * Give it the whole model, not a block of it: all parameters of a loss must begin equal on all ranks. Call it before the optimizer is made. Every rank runs the step on the same samples, and has the whole loss. `stateDict()` of the module
 * and of its optimizer gather the whole, with the keys and shapes of the undivided model: all ranks call them. For data parallel training
 * on top, call `replicate` with another dimension of the mesh afterwards.
 * errors: `config.invalid` for a mesh of several dimensions; `graph.misuse` for a path that no layer has, for a layer that is not linear, for
 * a parameter that another module shares, and for features that the ranks cannot divide; `peer.*`.
 */
export async function parallelizeModule<M extends Module>(
  module: M,
  mesh: DeviceMesh,
  plan: ParallelizePlan,
): Promise<M> {
  checkModule('parallelizeModule', module)
  checkMesh('parallelizeModule', mesh)
  checkRecord('parallelizeModule', 'plan', plan)
  for (const [path, style] of Object.entries(plan)) {
    // A class has apply too.
    const isStyle = isRecord(style) && typeof style.apply === 'function'
    const name = `plan["${clipped(path)}"]`
    checkArgument(
      'parallelizeModule',
      name,
      style,
      isStyle,
      'a style, such as new ColwiseParallel()',
    )
  }
  if (mesh.shape.length !== 1) {
    throw new TabringError(
      'config.invalid',
      `parallelizeModule: mesh must have one dimension, got ${formatShape(mesh.shape)}. Pass mesh.get(name).`,
    )
  }
  const group = mesh.getGroup()
  const layers = Object.entries(plan).flatMap(([pattern, style]) => {
    const found = layersNamed(module, pattern)
    if (found.length > 0) return found.map(([path, layer]) => ({ path, layer, style }))
    throw new TabringError(
      'graph.misuse',
      `parallelizeModule: plan must name layers, and the module has no layer "${clipped(pattern)}". Its layers are ${[
        ...module.namedModules(),
      ]
        .map(([path]) => path)
        .filter(Boolean)
        .join(', ')}.`,
    )
  })
  for (const { path, layer } of layers) refuseShared(module, path, layer)
  const buffers = module.buffers()
  const parameters = module.parameters()
  return whileSharing('parallelizeModule', parameters, async () => {
    await broadcastModel('parallelizeModule', group, [...parameters, ...buffers])
    for (const parameter of parameters) parameter.sameOn = group
    for (const buffer of buffers) buffer.holder = { ranks: group, root: 0 }
    module.registerForwardPreHook(joinsStep(group))
    for (const { path, layer, style } of layers) await style.apply({ path, module: layer, group })
    return module
  })
}

/** errors: `graph.misuse` for a parameter that another module holds too, which would keep the whole. */
function refuseShared(module: Module, path: string, layer: Module): void {
  for (const [name, parameter] of Object.entries(layer)) {
    if (!(parameter instanceof Parameter)) continue
    for (const [otherPath, other] of module.namedModules()) {
      if (other === layer || !Object.values(other).includes(parameter)) continue
      throw new TabringError(
        'graph.misuse',
        `parallelizeModule: "${path}.${name}" is also a parameter of "${clipped(otherPath)}". A shared parameter cannot be divided: omit "${clipped(path)}" from the plan, or give each layer its own.`,
      )
    }
  }
}

function layersNamed(module: Module, pattern: string): [path: string, layer: Module][] {
  const parts = pattern.split('.')
  return [...module.namedModules()].filter(([path]) => {
    const own = path.split('.')
    return own.length === parts.length && parts.every((part, i) => part === '*' || part === own[i])
  })
}
