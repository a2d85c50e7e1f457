import { stepScalar } from '../../graph/functions/linear.ts'
import type { Parameter } from '../../graph/trace/parameter.ts'
import { gradientWeight } from '../../graph/trace/trace.ts'
import type { Module } from '../../nn/module.ts'
import { initDeviceMesh } from '../../parallel/mesh/device-mesh.ts'
import { layersOf } from '../../parallel/pipeline/cut.ts'
import { fullyShard } from '../../parallel/sharded/fully-shard.ts'
import { sumOverRanks } from '../../parallel/tensor/sums.ts'
import type { ProcessGroup } from '../../peer/group/group.ts'
import { gathered } from './gathered.ts'
import type { SharedModel } from './shared-model.ts'

/** Each rank has a part of every layer. Begins with rank 0's values. */
export async function sharded(module: Module, group: ProcessGroup): Promise<SharedModel> {
  const mesh = await initDeviceMesh('webgpu', [group.size], { processGroup: group })
  const ranks = mesh.getGroup()
  for (const layer of layersAlone(module)) await fullyShard(layer, { mesh })
  if (module.parameters().some(({ sharedBy }) => !sharedBy)) await fullyShard(module, { mesh })
  return {
    ...gathered(module),
    model: module,
    dataRanks: group,
    mean: (value) => sumOverRanks(value.detach().mul(stepScalar(gradientWeight)), ranks),
  }
}

/** The layers with parameters that no other layer has too. */
function layersAlone(module: Module): Module[] {
  const layers = layersOf(module).map(([, layer]) => layer)
  const owners = new Map<Parameter, number>()
  for (const parameter of layers.flatMap((layer) => layer.parameters()))
    owners.set(parameter, (owners.get(parameter) ?? 0) + 1)
  return layers.filter((layer) => {
    const own = layer.parameters()
    return own.length > 0 && own.every((parameter) => owners.get(parameter) === 1)
  })
}
