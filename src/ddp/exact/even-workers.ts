import { virtualShares } from '../../data/shares.ts'
import { Assignment } from './assignment.ts'
import type { OwnWorkers } from './replays.ts'

/** The virtual workers of a rank, assigned evenly once: a program that feeds a step by hand knows the rows that it will take. */
export function evenWorkers(
  virtualWorkers: number,
  rows: number,
  { rank, size }: { readonly rank: number; readonly size: number },
): OwnWorkers {
  const shares = virtualShares(virtualWorkers, virtualWorkers, size)
  const even = new Assignment(shares.map((share) => share.rows))
  const { counts } = even
  const assignment = {
    counts,
    firstOf: (one: number) => even.firstOf(one),
    rankOf: (worker: number) => even.rankOf(worker),
    take: () => false,
  }
  return { first: even.firstOf(rank), count: counts[rank], rows, assignment }
}
