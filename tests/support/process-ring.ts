import { type CollectiveSpan, type GroupOptions, ProcessGroup } from '../../src/peer/group/group.ts'
import { Rejoining } from '../../src/peer/group/rejoin.ts'
import type { Link } from '../../src/peer/link/link.ts'
import { memoryPair } from '../../src/peer/link/memory-link.ts'
import { isLoss } from '../../src/trainer/loop/run-groups.ts'
import { type Env, systemEnv } from '../../src/util/env.ts'

/** Groups that no spec has destroyed yet: their heartbeats would continue in later specs of the worker. */
const made = new Set<ProcessGroup>()

function newGroup(options: GroupOptions): ProcessGroup {
  const group = new ProcessGroup(options)
  made.add(group)
  return group
}

/** Ends all groups that this module has made. */
export function destroyRings(): void {
  for (const group of made) group.destroy()
  made.clear()
}

const turns = new MessageChannel()
const pending: (() => void)[] = []
turns.port1.onmessage = () => pending.shift()?.()
// A process may end while the port is open.
if ('unref' in turns.port1) (turns.port1 as unknown as { unref(): void }).unref()

/** The real clock, but what is due at once does not wait for the millisecond that is the least `setTimeout` takes. */
const linkEnv: Env = {
  ...systemEnv,
  after(delayMs, callback) {
    if (delayMs >= 1) return systemEnv.after(delayMs, callback)
    let isCancelled = false
    pending.push(() => {
      if (!isCancelled) callback()
    })
    turns.port2.postMessage(null)
    return () => {
      isCancelled = true
    }
  },
}

/** By rank, the links between pairs of ranks in this page. */
function linksBetween(size: number, pairs: readonly (readonly [number, number])[]) {
  const links = Array.from({ length: size }, () => new Map<number, Link>())
  for (const [first, second] of pairs) {
    const [a, b] = memoryPair(linkEnv)
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
export async function meshOf(size: number, epoch = 1): Promise<ProcessGroup[]> {
  const pairs = ranksOf(size).flatMap((first) =>
    ranksOf(first).map((second) => [first, second] as const),
  )
  const groups = linksBetween(size, pairs).map((links, rank) =>
    newGroup({ rank, size, epoch, links, env: systemEnv }),
  )
  await Promise.all(groups.map((group) => group.ready()))
  return groups
}

/** N groups in this page, joined in a ring by memory links; `onspan` gets every rank's reports. */
export async function ringOf(
  size: number,
  onspan?: (rank: number, span: CollectiveSpan) => void,
): Promise<ProcessGroup[]> {
  const groups = ringLinks(size).map((links, rank) =>
    newGroup({
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
  readonly groups: Rejoining
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
          newest = newGroup({ rank, size, epoch, links: own, env: systemEnv })
          await newest.ready()
          return newest
        },
      })
      return {
        group: await ring.first(),
        groups: ring,
        leave: () => newest?.destroy(),
      }
    }),
  )
}
