import { type GroupConfig, type GroupOptions, ProcessGroup } from '../../src/peer/group/group.ts'
import type { Link } from '../../src/peer/link/link.ts'
import {
  type MemoryLink,
  type MemoryLinkOptions,
  memoryPair,
} from '../../src/peer/link/memory-link.ts'
import type { VirtualEnv } from '../../src/util/virtual-env.ts'

export interface MemoryRing {
  groups: ProcessGroup[]
  /** edges[r] joins rank r (first) to rank r + 1 (second); for two ranks there is edges[0] alone. */
  edges: [MemoryLink, MemoryLink][]
}

/** Builds a ring of `size` ranks over memory links; `edge(r)` gives the options of the link from rank r to r + 1. */
export function memoryRing(
  env: VirtualEnv,
  size: number,
  edge: (rank: number) => MemoryLinkOptions = () => ({}),
  config: Partial<GroupConfig> = {},
  more: Partial<GroupOptions> = {},
): MemoryRing {
  const links = Array.from({ length: size }, () => new Map<number, Link>())
  const edges: [MemoryLink, MemoryLink][] = []
  for (let rank = 0; rank < (size === 2 ? 1 : size === 1 ? 0 : size); rank++) {
    const next = (rank + 1) % size
    const pair = memoryPair(env, edge(rank))
    edges.push(pair)
    links[rank]!.set(next, pair[0])
    links[next]!.set(rank, pair[1])
  }
  const groups = links.map(
    (own, rank) => new ProcessGroup({ rank, size, epoch: 3, links: own, env, config, ...more }),
  )
  return { groups, edges }
}

/** Returns how each promise ended: `undefined` for success, else the error. */
export async function outcomes(promises: Promise<unknown>[]): Promise<(Error | undefined)[]> {
  const settled = await Promise.allSettled(promises)
  return settled.map((one) => (one.status === 'rejected' ? (one.reason as Error) : undefined))
}
