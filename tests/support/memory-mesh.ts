import { type GroupOptions, ProcessGroup } from '../../src/peer/group/group.ts'
import type { Link } from '../../src/peer/link/link.ts'
import { type MemoryLinkOptions, memoryPair } from '../../src/peer/link/memory-link.ts'
import type { VirtualEnv } from '../../src/util/virtual-env.ts'

/** Builds `size` ranks, each linked to each other over memory links. */
export function memoryMesh(
  env: VirtualEnv,
  size: number,
  edge: (first: number, second: number) => MemoryLinkOptions = () => ({}),
  more: Partial<GroupOptions> = {},
): ProcessGroup[] {
  const links = Array.from({ length: size }, () => new Map<number, Link>())
  for (let first = 0; first < size; first++)
    for (let second = first + 1; second < size; second++) {
      const [there, back] = memoryPair(env, edge(first, second))
      links[first]!.set(second, there)
      links[second]!.set(first, back)
    }
  return links.map(
    (own, rank) => new ProcessGroup({ rank, size, epoch: 3, links: own, env, ...more }),
  )
}
