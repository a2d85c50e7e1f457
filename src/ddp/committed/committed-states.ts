import { longestAnnounced, maxAnnouncedBytes } from '../../peer/group/announced-length.ts'
import type { ProcessGroup } from '../../peer/group/group.ts'
import { nonGroupMember } from '../../peer/group/non-group-member.ts'
import { endFactsOf, PeerError } from '../../util/errors.ts'
import { formatRanks } from '../../util/format-ranks.ts'
import { type SharedBytes, shareBytes } from './share-bytes.ts'

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

/** How states of a run are compared and sent. */
export interface StateForm<State> {
  /** For people, as in "the kept state". */
  readonly label: string
  /** How many are kept, the newest. */
  readonly max: number
  /** Bytes that a rank may send of one. Default: `maxAnnouncedBytes`. */
  readonly maxBytes?: number
  stepOf(state: State): number
  pack(state: State): Uint8Array<ArrayBuffer>
  /** State of `step`, as another rank has sent it. errors: what is wrong with it. */
  unpack(bytes: Uint8Array<ArrayBuffer>, step: number): State
}

/** The newest states that a rank has of a run; where there is none the run continues from its beginning. */
export class CommittedStates<State> {
  readonly #form: StateForm<State>
  #states: readonly State[] = []

  constructor(form: StateForm<State>) {
    this.#form = form
  }

  get newest(): State | undefined {
    return this.#states[0]
  }

  /** The newest first, each with `hashOf` it. */
  held(hashOf: (state: State) => string = () => ''): Held[] {
    return this.#states.map((state) => ({ step: this.#form.stepOf(state), hash: hashOf(state) }))
  }

  /** One of a step takes the place of another of that step. */
  add(state: State): void {
    const { max, stepOf } = this.#form
    const others = this.#states.filter((one) => stepOf(one) !== stepOf(state))
    this.#states = [state, ...others].slice(0, max)
  }

  /** Forgets the states of later steps. */
  backTo(step: number): void {
    this.#states = this.#states.filter((one) => this.#form.stepOf(one) <= step)
  }

  /**
   * Brings the newest state that any rank holds to those that lack it (`agreeOnState`), and forgets later ones. All ranks of the group call it.
   *
   * `held`: by rank, what each has.
   * errors: the group's; `unpack`'s; `peer.protocol` for a state of another step or one too large; `peer.timeout` on a rank that does not get it
   * within `limitMs`: the others continue without it.
   */
  async synchronize(
    group: ProcessGroup,
    held: readonly (readonly Held[])[],
    options: Pick<SharedBytes, 'limitMs' | 'onProgress'> = {},
  ): Promise<AgreedState> {
    const { label, maxBytes = maxAnnouncedBytes, pack, stepOf, unpack } = this.#form
    const agreed = agreeOnState(held)
    const { step, hasIt } = agreed
    this.backTo(step)
    const keeper = giverAmong(hasIt)
    if (keeper === undefined) return agreed
    // Those alone may have no ring of links.
    const lacking = hasIt.flatMap((has, rank) => (has ? [] : [rank]))
    const ranks = group.isFullyLinked ? await group.newGroup([keeper, ...lacking]) : group
    if (ranks === nonGroupMember) return agreed
    const root = ranks.ranks.indexOf(keeper)
    const own = keeper === group.rank ? this.newest && pack(this.newest) : undefined
    const share = async () => {
      const sizes = await ranks.allGatherU32(Uint32Array.of(own?.length ?? 0), { label })
      const size = sizes.subarray(root, root + 1)
      const bound = { slots: 1, rankOf: () => root, maxBytes }
      const sizeBytes = longestAnnounced(label, ranks, size, bound)
      return shareBytes(ranks, { ...options, root, sizeBytes, own, label })
    }
    const bytes = await share().catch((error) => {
      // The others wait in the group of all.
      if (error instanceof PeerError && !endFactsOf(error).leftOut) group.abort(error)
      throw error
    })
    if (hasIt[group.rank]) return agreed
    const state = unpack(bytes, step)
    if (stepOf(state) !== step)
      throw new PeerError(
        'peer.protocol',
        `${label}: rank ${keeper} must send that of step ${step}, but sent one of step ${stepOf(state)}. Continue without it.`,
      )
    this.add(state)
    return agreed
  }
}

/** The first rank that has something which another lacks. */
export function giverAmong(hasIt: readonly boolean[]): number | undefined {
  const first = hasIt.indexOf(true)
  return first >= 0 && hasIt.includes(false) ? first : undefined
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
