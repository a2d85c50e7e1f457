import { gatherJson } from '../../peer/group/gather-json.ts'
import type { ProcessGroup } from '../../peer/group/group.ts'
import type { KeptStates } from '../saves/kept-state.ts'
import { packState, unpackState } from '../saves/packed-state.ts'
import { hashOfState } from '../saves/state-hash.ts'
import { agreeOnState, type StatesDiffered } from './agree-on-state.ts'
import { shareBytes } from './share-bytes.ts'

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
  /** Of an exact run: ranks held other states of that step. */
  readonly differed?: StatesDiffered
}

/** What a rank brings besides the states that it has kept. */
export interface Brought extends Pick<Settled, 'suspect' | 'losses'> {
  /** Whether it has what a person gave. */
  readonly hasGiven: boolean
}

const label = 'the kept state'

/**
 * Settles the newest step that any rank has kept, and brings that state to those that lack it; later ones are forgotten. All ranks of a new
 * group call it first. `isExact`: ranks that hold another state of that step than most count among those that lack it (`agreeOnState`).
 *
 * errors: the group's.
 */
export async function meet(
  group: ProcessGroup,
  kept: KeptStates,
  own: Brought,
  isExact: boolean,
): Promise<Settled> {
  const held = kept.states.map((state) => ({
    step: state.progress.step,
    hash: isExact ? hashOfState(state) : '',
  }))
  const told = await gatherJson('what the ranks have kept', group, { ...own, held })
  const most = (read: (one: (typeof told)[number]) => number) => Math.max(0, ...told.map(read))
  const { step, hasIt, differed } = agreeOnState(told.map((one) => one.held))
  kept.backTo(step)
  const keeper = giverAmong(hasIt)
  if (keeper !== undefined) {
    const own = keeper === group.rank ? packState(kept.newest!) : undefined
    const sizes = await group.allGatherU32(Uint32Array.of(own?.length ?? 0), { label })
    const bytes = await shareBytes(group, { giver: keeper, sizeBytes: sizes[keeper], own, label })
    if (!hasIt[group.rank]) kept.add(unpackState(bytes))
  }
  return {
    step,
    suspect: most(({ suspect }) => suspect),
    losses: most(({ losses }) => losses),
    ...(differed && { differed }),
    giver: giverAmong(told.map(({ hasGiven }) => hasGiven)),
  }
}

/** The first rank that has something which another lacks. */
function giverAmong(hasIt: readonly boolean[]): number | undefined {
  const first = hasIt.indexOf(true)
  return first >= 0 && hasIt.includes(false) ? first : undefined
}
