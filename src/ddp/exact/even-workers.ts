import { virtualShares } from '../../data/shares.ts'
import type { OwnWorkers } from './exact-step.ts'

/** The virtual workers of a rank, dealt evenly and never anew: who feeds a step by hand knows the rows that it will take. */
export function evenWorkers(
  virtualWorkers: number,
  rows: number,
  { rank, size }: { readonly rank: number; readonly size: number },
): OwnWorkers {
  const shares = virtualShares(virtualWorkers, virtualWorkers, size)
  const { offset: first, rows: count } = shares[rank]
  const deal = {
    counts: shares.map((share) => share.rows),
    rankOf: (worker: number) => shares.findIndex((share) => worker < share.offset + share.rows),
    take: () => false,
  }
  return { first, count, rows, deal }
}
