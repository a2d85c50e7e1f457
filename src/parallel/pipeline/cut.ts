import { ModuleList } from '../../nn/containers.ts'
import { Embedding } from '../../nn/embedding.ts'
import { checkModule, type Module, Sequential } from '../../nn/module.ts'
import { TabringError } from '../../util/errors.ts'
import { checkText } from '../../util/options.ts'

/**
 * A module's layers by path: what a pipeline may be cut before. Lists and sequences count by what they hold; a residual block is one layer, and
 * so are embeddings that follow one another, whose outputs are added.
 */
export function layersOf(module: Module, path = ''): [path: string, layer: Module][] {
  checkModule('layersOf', module)
  checkText('layersOf', 'path', path)
  const layers = module.children().flatMap(([name, child]): [string, Module][] => {
    const at = path === '' ? name : `${path}.${name}`
    const isList = child instanceof ModuleList || child instanceof Sequential
    const holdsList = child.children().some(([, inner]) => inner instanceof ModuleList)
    return isList || holdsList ? layersOf(child, at) : [[at, child]]
  })
  const isEmbedding = (at: number) => layers[at]?.[1] instanceof Embedding
  return layers.filter((_, at) => !isEmbedding(at) || !isEmbedding(at - 1))
}

/** Returns the place of a module in `paths`: of the last one that begins at or before it, in the order of registration. */
export function placesBy(module: Module, paths: readonly string[]): (path: string) => number {
  const known = [...module.namedModules()].map(([path]) => path)
  const places = paths.map((path) => known.indexOf(path))
  return (path) => {
    const own = known.indexOf(path)
    return places.findLastIndex((place) => place <= own)
  }
}

/** The path of the module that holds a tensor. */
export const ownerOf = (key: string): string => key.slice(0, Math.max(0, key.lastIndexOf('.')))

/**
 * Returns where to cut a row of costs into `count` parts, so that the dearest part is as cheap as it can be: the first index of each part
 * but the first.
 */
export function cutEvenly(costs: readonly number[], count: number): number[] {
  if (count > costs.length) {
    throw new TabringError(
      'graph.misuse',
      `pipeline: ${count} stages are more than the ${costs.length} layers. Ask for fewer stages.`,
    )
  }
  const sums = [0]
  for (const cost of costs) sums.push(sums[sums.length - 1] + cost)
  /** By parts and their layers, from the first: the dearest part, and where the last one begins. */
  let best = sums.map((sum) => ({ worst: sum, cuts: [] as number[] }))
  for (let parts = 2; parts <= count; parts++) {
    const next = best.slice()
    for (let end = parts; end <= costs.length; end++) {
      next[end] = { worst: Number.POSITIVE_INFINITY, cuts: [] }
      for (let start = parts - 1; start < end; start++) {
        const worst = Math.max(best[start].worst, sums[end] - sums[start])
        if (worst < next[end].worst) next[end] = { worst, cuts: [...best[start].cuts, start] }
      }
    }
    best = next
  }
  return best[costs.length].cuts
}
