/** Who is linked to whom: the one rule for the rooms of the page and for process groups that form without one. */

/** The maximum number of members of a room, and so of ranks of a run. */
export const membersPerRoom = 64

/** The maximum number of ranks of which all are linked to all, by default; more form a ring. */
export const meshLimit = 16

/** Newcomers that a run links at once: so nobody forms more links at once than in a full mesh. */
export const newcomersAtOnce = meshLimit - 1

/** The ring's edges as [offering rank, answering rank]: N of them, one for 2 ranks, none for 1. */
export function ringEdges(worldSize: number): [number, number][] {
  if (worldSize < 2) return []
  if (worldSize === 2) return [[0, 1]]
  return Array.from({ length: worldSize }, (_, rank) => [rank, (rank + 1) % worldSize])
}

/** Likewise, of all pairs: N(N-1)/2 of them. */
export function meshEdges(worldSize: number): [number, number][] {
  const ranks = Array.from({ length: worldSize }, (_, rank) => rank)
  return ranks.flatMap((from) => ranks.slice(from + 1).map((to): [number, number] => [from, to]))
}

/** Those of all pairs up to `meshLimit` ranks, and the ring's beyond. */
export const edgesBySize = (worldSize: number): [number, number][] =>
  worldSize > meshLimit ? ringEdges(worldSize) : meshEdges(worldSize)

/**
 * Likewise, of a room: all pairs up to `meshLimit` ranks. Beyond, the ring, in which data goes, and chords across it, over which members decide who
 * trains on: each rank to those 2, 4, 8, ... places on. So 64 ranks have 11 links each, and a message reaches all in 3 hops. The offsets are
 * Chord's (Stoica et al., 2001).
 */
export function roomEdges(worldSize: number): [number, number][] {
  if (worldSize <= meshLimit) return meshEdges(worldSize)
  const edges: [number, number][] = []
  for (let offset = 1; 2 * offset <= worldSize; offset *= 2)
    for (let rank = 0; rank < worldSize; rank++) {
      const other = (rank + offset) % worldSize
      if (2 * offset < worldSize || rank < other) edges.push([rank, other])
    }
  return edges
}

/** A rank's ends of these edges. */
export const endsOf = (
  rank: number,
  edges: readonly (readonly [number, number])[],
): { peerRank: number; initiator: boolean }[] =>
  edges
    .filter((edge) => edge.includes(rank))
    .map(([from, to]) => ({ peerRank: from === rank ? to : from, initiator: from === rank }))

/** The ranks beside this one in the ring: before it and behind it, one alone in a room of two. */
export const ringNeighbours = (rank: number, worldSize: number): number[] =>
  endsOf(rank, ringEdges(worldSize)).map(({ peerRank }) => peerRank)

/**
 * Likewise, of the newcomers to a run, who come after its `ranks`: those of `roomEdges` that touch one, and each one's to rank 0, which measures
 * it.
 */
export function newcomerEdges(ranks: number, worldSize: number): [number, number][] {
  const edges = roomEdges(worldSize).filter((edge) => Math.max(...edge) >= ranks)
  for (let newcomer = ranks; newcomer < worldSize; newcomer++)
    if (!edges.some((edge) => edge.includes(0) && edge.includes(newcomer)))
      edges.push([0, newcomer])
  return edges
}
