import * as v from 'valibot'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { gatherJson } from '../../peer/group/gather-json.ts'
import type { ProcessGroup } from '../../peer/group/group.ts'
import { nonGroupMember } from '../../peer/group/non-group-member.ts'
import { leftOutError } from '../../peer/room/refusals.ts'
import { type KeptState, type KeptStates, mostKept } from '../saves/kept-state.ts'
import { packState, unpackState } from '../saves/packed-state.ts'
import { hashOfState } from '../saves/state-hash.ts'
import { agreeOnState, type StatesDiffered } from './agree-on-state.ts'
import { transferLimitMs } from './phase-timeouts.ts'
import { type SharedBytes, shareBytes } from './share-bytes.ts'

/** What ranks settle when they meet in a group that follows another: the same on all of them. */
export interface Settled {
  /** The step from which they continue. */
  readonly step: number
  /** The step that is to be looked at, 0 for none. */
  readonly suspect: number
  /** Devices that were lost since a state was kept. */
  readonly losses: number
  /** The rank that has what a person gave, where another lacks it. */
  readonly giver: number | undefined
  /** Whether the run has had other ranks than those that began it. */
  readonly hasOtherRanks: boolean
  /** Of an exact run: ranks held other states of that step. */
  readonly differed?: StatesDiffered
}

/** What a rank brings besides the states that it has kept. */
export interface Brought extends Pick<Settled, 'suspect' | 'losses' | 'hasOtherRanks'> {
  /** Whether it has what a person gave. */
  readonly hasGiven: boolean
  /** How long its steps took. */
  readonly stepMs?: number
}

const label = 'the kept state'

const whole = v.pipe(v.number(), v.safeInteger(), v.minValue(0))
/** What a rank tells the others, who have no other proof of it. */
const toldSchema = v.object({
  suspect: whole,
  losses: whole,
  hasGiven: v.boolean(),
  hasOtherRanks: v.boolean(),
  stepMs: v.optional(v.pipe(v.number(), v.minValue(0))),
  held: v.pipe(v.array(v.object({ step: whole, hash: v.string() })), v.maxLength(mostKept)),
})

/**
 * Settles the newest step that any rank has kept, and brings that state to those that lack it; later ones are forgotten. All ranks of a new
 * group call it first. `isExact`: ranks that hold another state of that step than most count among those that lack it (`agreeOnState`).
 *
 * errors: the group's; `peer.timeout` on a newcomer that does not get it in time: the others continue without it.
 */
export async function meet(
  group: ProcessGroup,
  kept: KeptStates,
  own: Brought,
  isExact: boolean,
  onProgress?: SharedBytes['onProgress'],
): Promise<Settled> {
  const held = kept.states.map((state) => ({
    step: state.progress.step,
    hash: isExact ? hashOfState(state) : '',
  }))
  const isTold = (one: unknown): one is v.InferOutput<typeof toldSchema> => v.is(toldSchema, one)
  const told = await gatherJson('what the ranks have kept', group, { ...own, held }, isTold)
  const most = (read: (one: (typeof told)[number]) => number) => Math.max(0, ...told.map(read))
  const { step, hasIt, differed } = agreeOnState(told.map((one) => one.held))
  kept.backTo(step)
  const keeper = giverAmong(hasIt)
  const lacking = hasIt.flatMap((has, rank) => (has ? [] : [rank]))
  if (keeper !== undefined) {
    // Those alone may have no ring of links.
    const ranks = group.isFullyLinked ? await group.newGroup([keeper, ...lacking]) : group
    if (ranks !== nonGroupMember) {
      const giver = ranks.ranks.indexOf(keeper)
      const limitMs =
        held.length > 0 ? undefined : transferLimitMs(most(({ stepMs = 0 }) => stepMs))
      const bytes = await sendState(
        ranks,
        giver,
        keeper === group.rank ? kept.newest : undefined,
        limitMs,
        onProgress,
      )
      if (!hasIt[group.rank]) kept.add(unpackState(bytes))
    }
  }
  return {
    step,
    suspect: most(({ suspect }) => suspect),
    losses: most(({ losses }) => losses),
    ...(differed && { differed }),
    giver: giverAmong(told.map(({ hasGiven }) => hasGiven)),
    hasOtherRanks: told.some(({ hasOtherRanks }) => hasOtherRanks),
  }
}

/**
 * Returns on all `ranks` the state that `giver` has. `limitMs`: how long it may take, of a rank that joins.
 *
 * errors: the group's; `peer.timeout`.
 */
async function sendState(
  ranks: CollectiveGroup,
  giver: number,
  state: KeptState | undefined,
  limitMs: number | undefined,
  onProgress: SharedBytes['onProgress'],
): Promise<Uint8Array<ArrayBuffer>> {
  const own = state && packState(state)
  const sizes = await ranks.allGatherU32(Uint32Array.of(own?.length ?? 0), { label })
  const sizeBytes = sizes[giver]
  let doneBytes = 0
  const sent = shareBytes(ranks, {
    ...{ giver, sizeBytes, own, label },
    onProgress: (done, total) => {
      doneBytes = done
      onProgress?.(done, total)
    },
  })
  if (limitMs === undefined) return sent
  const late = new Promise<never>((_, reject) => {
    const cancel = ranks.env.after(limitMs, () =>
      reject(
        leftOutError(
          'peer.timeout',
          `${doneBytes} of ${sizeBytes} bytes of its state came within ${limitMs / 1000} s. Check the connection of this tab.`,
        ),
      ),
    )
    sent.then(cancel, cancel)
  })
  return Promise.race([sent, late])
}

/** The first rank that has something which another lacks. */
function giverAmong(hasIt: readonly boolean[]): number | undefined {
  const first = hasIt.indexOf(true)
  return first >= 0 && hasIt.includes(false) ? first : undefined
}
