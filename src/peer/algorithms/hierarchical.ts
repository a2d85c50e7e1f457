/**
 * Two levels: ranks of one machine first, then one message between machines for each chunk.
 *
 * A rank that owns chunk c receives from the ranks of the same machine directly, and from each other machine through one rank there, the chunk's
 * *speaker*, which has summed that machine's parts. On the way back the owner sends to its own machine and the speakers, and these to theirs.
 * Which rank speaks differs from chunk to chunk, so that all links between two machines carry the same load.
 *
 * Between machines goes a chunk once each way, whatever number of ranks a machine has: 2(M-1)/M of the bytes leave each of M equal
 * machines in an all-reduce, where direct exchange sends that once for each rank of the machine.
 *
 * order: chunk c takes the ranks in the ring's order c+1, c+2, ..., c, but those of another machine are summed among themselves first;
 * other machines as they first occur in that order, then the owner's own ranks one by one. With the ranks of 0 1 | 2 3, chunk 1 is
 * (x2+x3)+x0+x1. So its bits depend on chunk, size and who shares a machine, and may differ from the other algorithms'.
 */
import { type ChunkRange, type Fold, modulo, type Plan, type Receive, type Send } from './plan.ts'

export interface HierarchicalArguments {
  rank: number
  /** By rank: which machine it is on. */
  machines: readonly number[]
  pieces: readonly Piece[]
}

/** A range and who has its result, or its contents. */
export interface Piece {
  owner: number
  range: ChunkRange
}

/** The owners of the pieces end with their sums. cost: 2 hops, one of them between machines. */
export function hierarchicalReduce({ rank, machines, pieces }: HierarchicalArguments): Plan {
  const sends: Send[] = []
  const receives: Receive[] = []
  const folds: Fold[] = []
  for (const { owner, range } of fromNext(pieces, rank)) {
    const step = owner
    const isHome = machines[owner] === machines[rank]
    const collector = isHome ? owner : speakerOf(machines, machines[rank]!, owner)
    if (collector !== rank) {
      sends.push({ peer: collector, step, chunk: owner, range })
      continue
    }
    const sources = sourcesOf(machines, rank, owner).map((peer) => {
      if (peer === rank) return 'own'
      receives.push({ peer, step, chunk: owner, range, into: 'aside' })
      return receives.length - 1
    })
    if (sources.length > 1) folds.push({ range, sources, ...(!isHome && { isPartial: true }) })
    if (!isHome) {
      const after = sources.length > 1 && { after: { fold: folds.length - 1 } }
      sends.push({ peer: owner, step, chunk: owner, range, ...after })
    }
  }
  return { sends, receives, folds }
}

/** The owners' pieces go to all. cost: 2 hops, one of them between machines. `reduced`: a plan before it, whose sums they are. */
export function hierarchicalGather(
  { rank, machines, pieces }: HierarchicalArguments,
  reduced: Plan = { sends: [], receives: [], folds: [] },
): Plan {
  const size = machines.length
  const sends: Send[] = []
  const receives: Receive[] = []
  const neighbours = ranksFrom(rank, size).filter(
    (other) => other !== rank && machines[other] === machines[rank],
  )
  for (const { owner, range } of fromNext(pieces, rank)) {
    const step = size + owner
    const give = (peer: number, after: Pick<Send, 'after'>) =>
      sends.push({ peer, step, chunk: owner, range, ...after })
    if (owner === rank) {
      const fold = reduced.folds.findIndex((one) => !one.isPartial && one.range === range)
      const after = fold >= 0 ? { after: { fold } } : {}
      for (const machine of machinesFrom(machines, rank))
        if (machine !== machines[rank]) give(speakerOf(machines, machine, owner), after)
      for (const peer of neighbours) give(peer, after)
      continue
    }
    const isHome = machines[owner] === machines[rank]
    const speaker = isHome ? owner : speakerOf(machines, machines[rank]!, owner)
    const peer = speaker === rank ? owner : speaker
    receives.push({ peer, step, chunk: owner, range, into: 'copy' })
    if (speaker !== rank) continue
    const receive = reduced.receives.length + receives.length - 1
    for (const other of neighbours) give(other, { after: { receive } })
  }
  return {
    sends: [...reduced.sends, ...sends],
    receives: [...reduced.receives, ...receives],
    folds: reduced.folds,
  }
}

/** cost: 4 hops, two of them between machines. */
export const hierarchicalAllReduce = (given: HierarchicalArguments): Plan =>
  hierarchicalGather(given, hierarchicalReduce(given))

/** Returns whether there is anything to gain: machines, some with several ranks. */
export function isHierarchy(machines: readonly number[] | undefined): machines is number[] {
  const count = new Set(machines).size
  return machines !== undefined && count > 1 && count < machines.length
}

/** Whose sums or parts a collector of chunk `owner` combines, in order. */
function sourcesOf(machines: readonly number[], rank: number, owner: number): number[] {
  const order = ranksFrom(owner + 1, machines.length)
  const own = order.filter((other) => machines[other] === machines[rank])
  if (machines[owner] !== machines[rank]) return own
  const others = machinesFrom(machines, owner + 1).filter((one) => one !== machines[rank])
  return [...others.map((machine) => speakerOf(machines, machine, owner)), ...own]
}

/** The rank of a machine that speaks for it to `owner`, who is on another. */
function speakerOf(machines: readonly number[], machine: number, owner: number): number {
  const inside = machines.flatMap((one, rank) => (one === machine ? [rank] : []))
  const before = machines.slice(0, owner).filter((one) => one !== machine).length
  return inside[before % inside.length]!
}

/** All ranks from `first` on, once round. */
const ranksFrom = (first: number, size: number): number[] =>
  Array.from({ length: size }, (_, hop) => modulo(first + hop, size))

/** All machines, as their ranks come from `first` on. */
const machinesFrom = (machines: readonly number[], first: number): number[] => [
  ...new Set(ranksFrom(first, machines.length).map((rank) => machines[rank]!)),
]

/** The pieces of the ranks behind `rank` first, so that not all begin with the same one. */
const fromNext = (pieces: readonly Piece[], rank: number): Piece[] => {
  const next = pieces.findIndex(({ owner }) => owner > rank)
  return next < 0 ? [...pieces] : [...pieces.slice(next), ...pieces.slice(0, next)]
}
