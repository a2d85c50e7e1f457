import type { Lobby, LobbyMember } from '../../peer/room/messages.ts'
import { isElastic, seesEachRank, type TrainConfig } from '../../trainer/settings/config.ts'
import { type CheckedDraft, checkDraft, type GivenFacts } from '../settings/check.ts'
import type { Run } from './run.ts'
import { hasEndedBeforeJoin, hasEndedWithout, isRunning } from './run-facts.ts'
import { outsideLinks } from './server-facts.ts'
import type { Snapshot } from './snapshot.ts'

/** Facts of the room, for views. */

/** Settings that another tab, the maker, would start now; once a run is on or has ended without a newer word, that run's settings. */
export function settingsOfRoom(snapshot: Snapshot): TrainConfig | null {
  const { run, proposed } = snapshot
  const own = run?.config ?? null
  return isRunning(snapshot) ? own : (proposed ?? own)
}

/** All in the room: those that are, or can be, ranks, then onlookers. */
export const everyone = (lobby: Lobby | null): readonly LobbyMember[] =>
  lobby ? [...lobby.members, ...(lobby.watchers ?? [])] : []

/** Number of tabs that the members are of: the ranks of one tab are several members. */
export function tabCount(lobby: Lobby): number {
  return new Set(everyone(lobby).map(({ tab, id }) => tab ?? id)).size
}

export function ownMember({ lobby, ownId }: Snapshot): LobbyMember | null {
  return everyone(lobby).find(({ id }) => id === ownId) ?? null
}

/** Returns whether this tab takes no rank. */
export const isWatching = (snapshot: Snapshot): boolean => ownMember(snapshot)?.watches === true

/** Returns whether the room's run has finished and this tab lacks its end: those who have it show it. */
export function hasMissed(snapshot: Snapshot): boolean {
  const { lobby, run } = snapshot
  const lacks = !run || run.isWatched || hasEndedWithout(run) || hasEndedBeforeJoin(run)
  return lobby?.state === 'finished' && !isWatching(snapshot) && lacks
}

export function isMaker({ lobby, ownId }: Snapshot): boolean {
  return lobby !== null && lobby.maker === ownId
}

/** Returns whether this tab hands the room over and removes members: for now, as its maker. */
export const canManage = (snapshot: Snapshot): boolean =>
  isMaker(snapshot) && snapshot.serverLost === null && !snapshot.isMoving

export function makerName({ lobby }: Snapshot): string {
  return everyone(lobby).find(({ id }) => id === lobby?.maker)?.name ?? 'the host'
}

/**
 * Member that pauses and stops the run: the maker. Where that has no rank, as when it has left and there is no server to name another, the first rank:
 * both go over the links.
 */
function inCharge({ lobby, run }: Snapshot): Run['members'][number] | undefined {
  return run?.members.find(({ id }) => id === lobby?.maker) ?? run?.members[0]
}

/** Returns whether that is this tab, by any of its ranks. It may end a pause that another one began. */
export function isInCharge(snapshot: Snapshot): boolean {
  const { run } = snapshot
  const own = run?.members[run.rank]
  const who = inCharge(snapshot)
  if (!own || run?.isWatched) return false
  return who === own || (own.tab !== undefined && who?.tab === own.tab)
}

/** Returns whether this tab may change the room's settings: it made the room, and nothing runs. */
export const canSet = (snapshot: Snapshot): boolean =>
  snapshot.stage === 'inside' && isMaker(snapshot) && !isRunning(snapshot)

/** The demo on show: while the maker chooses one, that, to all; else the one that ran. */
export function shownDemo(snapshot: Snapshot): string {
  const { demo } = snapshot.draft
  return canSet(snapshot) ? demo : (settingsOfRoom(snapshot)?.demo ?? demo)
}

/** Returns whether this tab may change settings of the run under way. */
export const canChange = (snapshot: Snapshot): boolean =>
  isRunning(snapshot) && isInCharge(snapshot)

/** Where a person has to decide whether the run continues, that person may also end it. */
export const canStop = (snapshot: Snapshot): boolean =>
  isInCharge(snapshot) || (!snapshot.run?.isWatched && (snapshot.run?.undecided ?? null) !== null)

export const nameInCharge = (snapshot: Snapshot): string =>
  inCharge(snapshot)?.name ?? makerName(snapshot)

/** The form's settings, judged for the room and this tab as they are now. */
export const checkedDraft = (
  snapshot: Snapshot,
  worldSize = snapshot.lobby?.members.length,
): CheckedDraft => checkDraft(snapshot.experiments, snapshot.draft, worldSize, givenFacts(snapshot))

/** These members, and all others of their tabs. */
export function withTabs({ lobby }: Snapshot, ids: readonly string[]): LobbyMember[] {
  const members = everyone(lobby)
  const tabs = members.flatMap(({ id, tab }) => (tab && ids.includes(id) ? [tab] : []))
  return members.filter(({ id, tab }) => ids.includes(id) || (tab && tabs.includes(tab)))
}

/** The form's settings, judged for the room without some members and their tabs. */
export const checkedWithout = (snapshot: Snapshot, ids: readonly string[]): CheckedDraft =>
  checkedDraft(
    snapshot,
    (snapshot.lobby?.members.length ?? 0) -
      withTabs(snapshot, ids).filter(({ watches }) => !watches).length,
  )

/** The settings as they start: where other machines can join, or may for all this tab knows, other tabs are strangers unless a person trusts them. */
export function withTrust(
  config: Partial<TrainConfig>,
  { invite, server }: Pick<Snapshot, 'invite' | 'server'>,
): Partial<TrainConfig> {
  const { exact = false, parallel = 'dp', strategy = 'ddp', trust = 'auto' } = config
  const isOpen = invite !== '' && (!server || outsideLinks(invite, server).length > 0)
  if (trust !== 'auto' || !isOpen || !seesEachRank({ exact, parallel, strategy })) return config
  return { ...config, trust: 'strangers' }
}

/** Facts of this tab about the data that a person gave to the draft's demo. */
export const givenFacts = ({
  draft: { demo },
  given,
  givenSamples,
  damagedInLink,
}: Snapshot): GivenFacts => ({
  isThere: Object.hasOwn(given, demo),
  samples: Object.hasOwn(givenSamples, demo) ? givenSamples[demo] : undefined,
  isDamaged: damagedInLink === demo,
})

/** The room is in a run, this tab's or not. */
export function isRoomOn({ lobby }: Snapshot): boolean {
  return lobby?.state === 'assigned' || lobby?.state === 'running'
}

/** The room's run has begun; it may be over. */
export const hasRun = ({ lobby }: Snapshot): boolean => lobby !== null && lobby.state !== 'lobby'

/** That run continues when a rank is lost, and admits tabs: the room knows its newest roster. */
export function isElasticOn({ lobby }: Snapshot): boolean {
  return lobby?.state === 'running' && lobby.ballot !== undefined
}

/** The room is in a run that this tab is not part of. */
export function isWaitingForNext(snapshot: Snapshot): boolean {
  const { lobby } = snapshot
  if (!lobby || isRunning(snapshot)) return false
  return isRoomOn(snapshot) && ownMember(snapshot)?.rank === null
}

export function canStart(snapshot: Snapshot): boolean {
  const { stage, lobby, serverLost, askedHost, isMoving } = snapshot
  if (stage !== 'inside' || !lobby || serverLost !== null) return false
  if (askedHost !== null || isMoving) return false
  return isMaker(snapshot) && !isRoomOn(snapshot) && !isRunning(snapshot)
}

/** Returns whether a run with these settings continues when a rank is lost, and admits tabs that come later. */
export const admits = ({
  elastic = true,
  parallel = 'dp',
  strategy = 'ddp',
}: Partial<TrainConfig>): boolean => isElastic({ elastic, parallel, strategy })
