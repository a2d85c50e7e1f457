import type { RunInputs } from '../../graph/plan/step-program.ts'
import { mixA } from '../../kernels/hash/hash-words.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { formatRanks } from '../../util/format-ranks.ts'

/** Bounds of the number of steps from one audit to the next; each is equally likely. */
export const stepsBetweenAudits = { min: 13, max: 50 } as const
/** Steps from one audit to the next, in the mean. */
export const meanStepsBetweenAudits = (stepsBetweenAudits.min + stepsBetweenAudits.max) / 2

/** Inputs and scalars of all virtual workers of a rank. */
export interface RankBatch {
  readonly inputs: RunInputs
  readonly scalars: Readonly<Record<string, number>>
}

/** How ranks whose bits are the same on every machine check each other's gradients. */
export interface Audits {
  /** Of the step behind the first `stepsDone`, for a rank's virtual workers `first` to `first + count`. */
  readonly batchOf: (stepsDone: number, first: number, count: number) => RankBatch
  /** The error of ranks whose gradients are not those of their samples; thrown on all ranks. `hasMajority`: more ranks are honest than not. */
  readonly errorOf: (ranks: readonly number[], text: string, hasMajority: boolean) => Error
  /** Somebody changes the sums on their way, and nothing says who. */
  readonly onChanged: (step: number, text: string) => void
}

/** Inputs of the audit of a step. */
export interface AuditedStep {
  readonly group: CollectiveGroup
  /** Of the run, from 1. */
  readonly step: number
  readonly seed: number
  /** The digest of what this rank has given to the sums, and of the sums. */
  readonly own: Digest
  readonly sum: Digest
  /** Computes a rank's gradients again, and returns their digest. */
  readonly again: (rank: number) => Promise<Digest>
  readonly audits: Audits
}

/** Two 32-bit lanes. */
export type Digest = readonly [number, number]

/** Draws the steps that are audited, by what the ranks know only once the step's sums are there. */
export class AuditDraw {
  /** Bounds of the number of steps to the next audit. The first may come at once: groups that change often have audits too. */
  #min = 0
  #max: number = stepsBetweenAudits.max

  /** `words`: the same on all ranks, and unknown to each before the exchange. Returns the seed of the step's audit, if it is audited. */
  take(words: readonly [number, number]): number | undefined {
    const left = this.#max--
    if (--this.#min > 0 || words[0] % left > 0) return undefined
    this.#min = stepsBetweenAudits.min
    this.#max = stepsBetweenAudits.max
    return words[1]
  }
}

/**
 * A linear digest of whole numbers: that of a sum is the sum of the digests, modulo 2^32. Its coefficients are drawn once the numbers are on
 * their way, so that nobody can choose other numbers of the same digest.
 */
export function digestOf(words: Int32Array, seed: number): Digest {
  let a = 0
  let b = 0
  for (let i = 0; i < words.length; i++) {
    const word = words[i]
    if (word === 0) continue
    const drawn = mixA(seed + Math.imul(i, 0x9e3779b9))
    a = (a + Math.imul(word, drawn)) | 0
    b = (b + Math.imul(word, mixA(drawn))) | 0
  }
  return [a >>> 0, b >>> 0]
}

/**
 * One rank of the others computes each rank's gradients again. Where one gets other ones, or the sums are not those of what the ranks say they
 * gave, all compute all of them, and a rank that more than half of the others contradict is named: for its gradients, or for having contradicted
 * a rank that gave the right ones.
 *
 * All ranks call it, before they update anything. errors: `audits.errorOf`; the group's.
 */
export async function audit(audited: AuditedStep): Promise<void> {
  const { group, step, seed, own, sum, again, audits } = audited
  const { rank, size } = group
  const offset = 1 + (seed % (size - 1))
  const checkedBy = (observer: number) => (observer + offset) % size
  const found = await again(checkedBy(rank))
  const first = await gather(group, [own, found])
  const claims = first.map(([claim]) => claim)
  const said = first.map(([, about]) => about)
  const total = claims.reduce<Digest>(add, [0, 0])
  const isWhole = isSame(total, sum)
  if (isWhole && said.every((digest, observer) => isSame(digest, claims[checkedBy(observer)])))
    return
  const opinions: Digest[] = []
  for (let other = 0; other < size; other++)
    opinions.push(other === rank ? own : await again(other))
  const all = await gather(group, opinions)
  const isOutvoted = (about: number, digest: Digest) => {
    const others = all.filter((_, observer) => observer !== about)
    return 2 * others.filter((one) => !isSame(one[about], digest)).length > others.length
  }
  const untrue = claims.flatMap((claim, other) => (isOutvoted(other, claim) ? [other] : []))
  const accusers = said.flatMap((digest, observer) => {
    const about = checkedBy(observer)
    const isWrong = !untrue.includes(about) && !isSame(digest, claims[about])
    return isWrong ? [observer] : []
  })
  const named = [...new Set([...untrue, ...accusers])].sort((a, b) => a - b)
  if (named.length > 0) {
    const text =
      untrue.length > 0
        ? `step ${step}: the gradients of ${formatRanks(untrue)} are not those of ${untrue.length > 1 ? 'their' : 'its'} samples, which other ranks computed again`
        : `step ${step}: ${formatRanks(accusers)} computed another rank's gradients again, and got other ones than all others`
    throw audits.errorOf(named, text, 2 * named.length < size)
  }
  if (!isWhole)
    audits.onChanged(
      step,
      `the sums of step ${step} are not those of the ranks' gradients: a rank changes what it passes on, and nothing says which`,
    )
}

/** By rank, what each gives: `own.length` digests. */
async function gather(group: CollectiveGroup, own: readonly Digest[]): Promise<Digest[][]> {
  const all = await group.allGatherU32(Uint32Array.from(own.flat()), { label: 'audit' })
  return Array.from({ length: group.size }, (_, rank) =>
    own.map((_, i): Digest => {
      const at = 2 * (rank * own.length + i)
      return [all[at], all[at + 1]]
    }),
  )
}

const add = (one: Digest, other: Digest): Digest => [
  (one[0] + other[0]) >>> 0,
  (one[1] + other[1]) >>> 0,
]

const isSame = (one: Digest, other: Digest): boolean => one[0] === other[0] && one[1] === other[1]
