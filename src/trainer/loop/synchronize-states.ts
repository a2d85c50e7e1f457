import * as v from 'valibot'
import type { StatesDiffered } from '../../ddp/committed/agree-on-state.ts'
import { giverAmong } from '../../ddp/committed/committed-states.ts'
import type { SharedBytes } from '../../ddp/committed/share-bytes.ts'
import { gatherJson } from '../../peer/group/gather-json.ts'
import type { ProcessGroup } from '../../peer/group/group.ts'
import { longestTimeoutMs } from '../../util/options.ts'
import { type KeptStates, maxKept } from '../saves/kept-states.ts'
import { hashOfState } from '../saves/state-hash.ts'
import { transferLimitMs } from './phase-timeouts.ts'

/** Agreements of ranks when they form a group that follows another: the same on all of them. */
export interface Settled {
  /** The step from which they continue. */
  readonly step: number
  /** The step that is to be looked at, 0 for none. */
  readonly suspect: number
  /** How many times in a row the ranks went back without progress. */
  readonly losses: number
  /** By rank: how many of these were by its device or its state. */
  readonly faults: readonly number[]
  /** The step to which they did so last. */
  readonly wentBackTo: number
  /** The rank that has what a person gave, where another lacks it. */
  readonly giver: number | undefined
  /** True if the run has had other ranks than those that began it. */
  readonly hasOtherRanks: boolean
  /** Of an exact run: ranks held other states of that step. */
  readonly differed?: StatesDiffered
  /** On a rank that joins: how long each of what it takes from the others may take. units: ms. */
  readonly limitMs?: number
}

const whole = v.pipe(v.number(), v.safeInteger(), v.minValue(0))
/** Report of a rank to the others, who have no other proof of it. */
const reportSchema = v.strictObject({
  suspect: whole,
  losses: whole,
  /** How many times in a row the ranks went back by its device or its state. */
  faults: whole,
  wentBackTo: whole,
  /** True if it has what a person gave. */
  hasGiven: v.boolean(),
  hasOtherRanks: v.boolean(),
  /** How long its steps took. A newcomer waits some times as long. */
  stepMs: v.optional(v.pipe(v.number(), v.minValue(0), v.maxValue(longestTimeoutMs / 8))),
  held: v.pipe(
    v.array(v.strictObject({ step: whole, hash: v.pipe(v.string(), v.maxLength(16)) })),
    v.maxLength(maxKept),
  ),
})
type Report = v.InferOutput<typeof reportSchema>
const isReport = (received: unknown): received is Report => v.is(reportSchema, received)

/** Facts that a rank brings besides the states that it has kept. */
export type Brought = Omit<Report, 'held'>

/**
 * Settles the newest step that any rank has kept, and brings that state to those that lack it; later ones are forgotten. All ranks of a new
 * group call it first. `isExact`: ranks that hold another state of that step than most count among those that lack it (`agreeOnState`).
 *
 * errors: the group's; those of `unpackState`; `peer.protocol` for a state of another step or one too large; `peer.timeout` on a newcomer that
 * does not get it in time: the others continue without it.
 */
export async function synchronizeStates(
  group: ProcessGroup,
  kept: KeptStates,
  own: Brought,
  isExact: boolean,
  onProgress?: SharedBytes['onProgress'],
): Promise<Settled> {
  const held = kept.held(isExact ? hashOfState : undefined)
  const received = await gatherJson('what the ranks have kept', group, { ...own, held }, isReport)
  const max = (read: (one: Report) => number) => Math.max(0, ...received.map(read))
  const isNew = held.length === 0 && received.some((one) => one.held.length > 0)
  const limitMs = isNew ? transferLimitMs(max(({ stepMs = 0 }) => stepMs)) : undefined
  const heldByRank = received.map((one) => one.held)
  const { step, differed } = await kept.synchronize(group, heldByRank, { limitMs, onProgress })
  return {
    step,
    suspect: max(({ suspect }) => suspect),
    losses: max(({ losses }) => losses),
    faults: received.map(
      ({ faults }, rank) => faults + Number(isAtFault(differed, rank, group.size)),
    ),
    wentBackTo: max(({ wentBackTo }) => wentBackTo),
    ...(differed && { differed }),
    giver: giverAmong(received.map(({ hasGiven }) => hasGiven)),
    hasOtherRanks: received.some(({ hasOtherRanks }) => hasOtherRanks),
    ...(limitMs !== undefined && { limitMs }),
  }
}

/** Tells whether a rank had another state than most. */
const isAtFault = (differed: StatesDiffered | undefined, rank: number, size: number): boolean =>
  differed !== undefined && 2 * differed.ranks.length < size && differed.ranks.includes(rank)
