import { endedWithout } from '../../peer/room/refusals.ts'
import type { Run } from './run.ts'
import type { Snapshot } from './snapshot.ts'

/** What views ask of the run. */

/** Returns whether a run of this tab has begun and not ended. */
export function isRunning({ run }: Snapshot): boolean {
  return run !== null && run.end === null
}

/** The run makes steps, with the tests between them. */
export function makesSteps({ phase, end }: Pick<Run, 'phase' | 'end'>): boolean {
  return end === null && (phase === 'train' || phase === 'evaluate')
}

/** Steps follow each other now: nobody is waited for, be it a person, a rank that was lost, or one that does not answer. */
export function advances(run: Run): boolean {
  const { paused, isStepping, undecided, lostName, silent } = run
  const isHeld = (paused && !isStepping) || undecided || lostName !== null || silent.length > 0
  return makesSteps(run) && !isHeld
}

/** By name, those for whose answer all ranks wait; empty while steps follow each other, and in a pause. */
export const awaited = ({ undecided, silent, members, end }: Run): readonly string[] =>
  end ? [] : (undecided?.missing ?? silent.map((rank) => members[rank].name))

/** The others have come to the run's end while this tab was away. */
export const hasEndedWithout = ({ end }: Run): boolean =>
  end?.kind === 'failed' && end.text.includes(endedWithout)

/** The others have come to the run's end, or have all left, while this tab got ready to join them. */
export const hasEndedBeforeJoin = ({ joins, end }: Run): boolean =>
  joins &&
  end?.kind === 'failed' &&
  ['peer.lost', 'peer.aborted'].includes(end.code) &&
  // Else it was left out before that, and the reason stays.
  !(end.code === 'peer.aborted' && end.leftOut)

/** The others continue without this tab, which comes again. */
export const isLeftOut = ({ end }: Run): boolean =>
  end?.kind === 'failed' && end.leftOut === 'again'

/** Each rank trains a separate model. */
export const hasOwnModels = ({ config, worldSize }: Pick<Run, 'config' | 'worldSize'>): boolean =>
  config?.strategy === 'alone' && worldSize > 1

/** Ranks share the steps of one model, so that this one has a part of them. */
export const hasPart = ({ config, worldSize, isWatched }: Run): boolean =>
  !isWatched && worldSize > 1 && config?.parallel === 'dp' && config.strategy === 'ddp'

/** The ranks of this tab, where it says which they are. */
export function ranksHere({ members, rank }: Pick<Run, 'members' | 'rank'>): readonly number[] {
  const tab = members[rank]?.tab
  return members.flatMap((member, one) => (tab !== undefined && member.tab === tab ? [one] : []))
}

/** The ranks of this tab, where there are several and each trains a separate model; else none. */
export function ranksApart(run: Run | null): readonly number[] {
  if (run?.config?.strategy !== 'alone') return []
  const here = ranksHere(run)
  return here.length > 1 ? here : []
}

export const rankName = ({ members }: Run, rank: number): string =>
  `rank ${rank} (${members[rank].name})`

/** Ranks that this tab had no link to yet when the run ended because one could not be reached. */
export function unreachedRanks({ run }: Snapshot): readonly number[] {
  if (run?.end?.kind !== 'failed' || run.end.code !== 'peer.unreachable') return []
  const { ranks } = run.end
  return run.peers.filter((rank) => !(rank in run.ways) && (!ranks || ranks.includes(rank)))
}

/** Ranks that the current run has lost, or that ended it by going; not those that left after its end. */
export function goneRanks(snapshot: Snapshot): readonly number[] {
  const { run } = snapshot
  return run?.end ? run.lost : outsideRanks(snapshot)
}

/** Ranks of the run that are not in the room now. */
function outsideRanks({ run, lobby }: Snapshot): readonly number[] {
  if (!run || !lobby) return []
  return run.members.flatMap(({ id }, rank) => {
    const member = lobby.members.find((one) => one.id === id)
    return member?.attached ? [] : [rank]
  })
}

/** The ranks that an end by the others' fault is due to: those that it names, else those that the room no longer lists. */
export function lostRanks(snapshot: Snapshot): readonly number[] {
  const { run } = snapshot
  if (!run?.end || run.end.kind === 'finished' || !run.end.code.startsWith('peer.')) return []
  const { code, ranks = [] } = run.end
  const isOfLost = code === 'peer.lost' || code === 'peer.removed'
  if (!isOfLost || ranks.length === 0) return outsideRanks(snapshot)
  return ranks.filter((rank) => rank < run.members.length)
}
