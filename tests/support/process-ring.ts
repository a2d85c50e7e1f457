import { ProcessGroup } from '../../src/peer/group.ts'
import type { Link } from '../../src/peer/link.ts'
import { memoryPair } from '../../src/peer/memory.ts'
import { systemEnv } from '../../src/util/env.ts'

/** N groups in this page, joined in a ring by memory links. */
export async function ringOf(size: number): Promise<ProcessGroup[]> {
  const links = Array.from({ length: size }, () => new Map<number, Link>())
  const pairs = size === 1 ? 0 : size === 2 ? 1 : size
  for (let rank = 0; rank < pairs; rank++) {
    const next = (rank + 1) % size
    const [a, b] = memoryPair(systemEnv)
    links[rank].set(next, a)
    links[next].set(rank, b)
  }
  const groups = links.map(
    (own, rank) => new ProcessGroup({ rank, size, epoch: 1, links: own, env: systemEnv }),
  )
  await Promise.all(groups.map((group) => group.ready()))
  return groups
}
