import { ModuleList } from '../../nn/containers.ts'
import { type Module, Sequential } from '../../nn/module.ts'
import { initDeviceMesh } from '../../parallel/mesh/device-mesh.ts'
import { fullyShard } from '../../parallel/sharded/fully-shard.ts'
import type { ProcessGroup } from '../../peer/group/group.ts'
import { gatherModel, meanOver } from './gather-model.ts'
import type { SharedModel } from './shared-model.ts'

/** Each rank has a part of every layer. Begins with rank 0's values. */
export async function sharded(module: Module, group: ProcessGroup): Promise<SharedModel> {
  const mesh = await initDeviceMesh('webgpu', [group.size], { processGroup: group })
  for (const layer of layersOf(module)) await fullyShard(layer, { mesh })
  if (module.parameters().some(({ sharedBy }) => !sharedBy)) await fullyShard(module, { mesh })
  const parameterBytes = module.parameters().reduce((sum, { count }) => sum + 4 * count, 0)
  return {
    held: group.ranks.map(() => ({ parameterBytes })),
    ...gatherModel(module),
    model: module,
    dataRanks: group,
    mean: meanOver(mesh.getGroup()),
  }
}

/** Returns the members of lists and sequences that have parameters: their forward is called, where other modules may read a layer's weights themselves. */
function layersOf(module: Module): Module[] {
  return module.children().flatMap(([, child]) => {
    const isListed = module instanceof ModuleList || module instanceof Sequential
    if (!isListed || child instanceof ModuleList || child instanceof Sequential)
      return layersOf(child)
    return child.parameters().length > 0 ? [child] : []
  })
}
