import { formatRanks } from '../../util/format-ranks.ts'

/** A state that a rank has kept. */
export interface Held {
  readonly step: number
  readonly hash: string
}

/** That ranks held other states of a step than the others. */
export interface StatesDiffered {
  readonly ranks: readonly number[]
  readonly text: string
  /** Nothing says whether the run still has the bits that it should have. */
  readonly isLasting: boolean
}

/** From which state the ranks of an exact run continue. */
export interface AgreedState {
  readonly step: number
  /** By rank: has it. */
  readonly hasIt: readonly boolean[]
  readonly differed: StatesDiffered | undefined
}

/**
 * The newest state that any rank holds. Where several are of that step, all take the one that most hold; where as many hold another, the newest
 * before it in which they agree, and if there is none, that of the lowest rank.
 *
 * `held`: by rank, the newest first. The same on all ranks.
 */
export function agreeOnState(held: readonly (readonly Held[])[]): AgreedState {
  const hashesOf = (step: number) => held.map((own) => own.find((one) => one.step === step)?.hash)
  const steps = [...new Set(held.flat().map(({ step }) => step))].sort((a, b) => b - a)
  const [newest = 0] = steps
  const hashes = hashesOf(newest)
  const have = (all: readonly (string | undefined)[], hash: string | undefined) =>
    all.map((own) => own !== undefined && own === hash)
  const max = commonestHashes(hashes)
  const ranksOf = (is: (hash: string) => boolean) =>
    hashes.flatMap((hash, rank) => (hash !== undefined && is(hash) ? [rank] : []))
  if (max.length < 2) {
    const ranks = ranksOf((hash) => hash !== max[0])
    const right = ranksOf((hash) => hash === max[0])
    const own = ranks.length > 1 ? 'states' : 'state'
    const text = `the ${own} of ${formatRanks(ranks)} differed from that of ${formatRanks(right)}, and ${ranks.length > 1 ? 'are' : 'is'} replaced by it`
    const differed = ranks.length > 0 ? { ranks, text, isLasting: false } : undefined
    return { step: newest, hasIt: have(hashes, max[0]), differed }
  }
  const ranks = ranksOf(() => true)
  const tie = `the states of ${formatRanks(ranks)} differed, and no state has most ranks`
  for (const step of steps.slice(1)) {
    const before = hashesOf(step)
    const agreed = commonestHashes(before)
    if (agreed.length > 1) continue
    const differed = {
      ranks,
      text: `${tie}: they continue from step ${step}, in which they agree`,
      isLasting: false,
    }
    return { step, hasIt: have(before, agreed[0]), differed }
  }
  const first = hashes.find((hash) => hash !== undefined)
  const text = `${tie}: all take that of rank ${hashes.indexOf(first)}, and nothing says which was right`
  return { step: newest, hasIt: have(hashes, first), differed: { ranks, text, isLasting: true } }
}

/** The hashes that most ranks hold: several where as many hold each; none where nobody holds any. */
function commonestHashes(hashes: readonly (string | undefined)[]): string[] {
  const counts = new Map<string, number>()
  for (const hash of hashes) if (hash !== undefined) counts.set(hash, (counts.get(hash) ?? 0) + 1)
  const max = Math.max(...counts.values())
  return [...counts].flatMap(([hash, count]) => (count === max ? [hash] : []))
}
