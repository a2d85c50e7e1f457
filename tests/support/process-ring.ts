import { type CollectiveSpan, ProcessGroup } from '../../src/peer/group.ts'
import type { Link } from '../../src/peer/link.ts'
import { memoryPair } from '../../src/peer/memory.ts'
import { Rejoining } from '../../src/peer/rejoin.ts'
import { isLoss } from '../../src/train/recovery.ts'
import { systemEnv } from '../../src/util/env.ts'

/** By rank, the links between pairs of ranks in this page. */
function linksBetween(size: number, pairs: readonly (readonly [number, number])[]) {
  const links = Array.from({ length: size }, () => new Map<number, Link>())
  for (const [first, second] of pairs) {
    const [a, b] = memoryPair(systemEnv)
    links[first].set(second, a)
    links[second].set(first, b)
  }
  return links
}

const ranksOf = (size: number) => Array.from({ length: size }, (_, rank) => rank)

const ringLinks = (size: number) =>
  linksBetween(
    size,
    ranksOf(size === 2 ? 1 : size === 1 ? 0 : size).map((rank) => [rank, (rank + 1) % size]),
  )

/** N groups in this page, each rank linked to each other by memory links. */
export async function meshOf(size: number): Promise<ProcessGroup[]> {
  const pairs = ranksOf(size).flatMap((first) =>
    ranksOf(first).map((second) => [first, second] as const),
  )
  const groups = linksBetween(size, pairs).map(
    (links, rank) => new ProcessGroup({ rank, size, epoch: 1, links, env: systemEnv }),
  )
  await Promise.all(groups.map((group) => group.ready()))
  return groups
}

/** N groups in this page, joined in a ring by memory links; `onspan` gets every rank's reports. */
export async function ringOf(
  size: number,
  onspan?: (rank: number, span: CollectiveSpan) => void,
): Promise<ProcessGroup[]> {
  const groups = ringLinks(size).map(
    (links, rank) =>
      new ProcessGroup({
        rank,
        size,
        epoch: 1,
        links,
        env: systemEnv,
        onspan: (span) => onspan?.(rank, span),
      }),
  )
  await Promise.all(groups.map((group) => group.ready()))
  return groups
}

/** A rank that joins its ring again where a lost device has ended the group. */
export interface RejoiningRank {
  readonly group: ProcessGroup
  regroup(ended: ProcessGroup): Promise<ProcessGroup>
  /** Leaves the newest group. */
  leave(): void
}

/** As `ringOf`, for groups that others follow over the same links. */
export async function rejoiningRingOf(size: number): Promise<RejoiningRank[]> {
  return Promise.all(
    ringLinks(size).map(async (links, rank) => {
      let newest: ProcessGroup | undefined
      const ring = new Rejoining({
        epoch: 1,
        links,
        follows: isLoss,
        join: async (epoch, own) => {
          newest?.destroy()
          newest = new ProcessGroup({ rank, size, epoch, links: own, env: systemEnv })
          await newest.ready()
          return newest
        },
      })
      return {
        group: await ring.first(),
        regroup: (ended) => ring.after(ended),
        leave: () => newest?.destroy(),
      }
    }),
  )
}
