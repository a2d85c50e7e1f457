/** `rank 0`, `ranks 0 and 2`, `ranks 0, 1 and 3` */
export function formatRanks(ranks: readonly number[]): string {
  if (ranks.length === 1) return `rank ${ranks[0]}`
  return `ranks ${ranks.slice(0, -1).join(', ')} and ${ranks[ranks.length - 1]}`
}
