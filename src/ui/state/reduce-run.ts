import { memberOf } from '../../peer/room/lives.ts'
import type { Assignment } from '../../peer/room/messages.ts'
import type { StepParts } from '../../trainer/watch/run-events.ts'
import type { RunEvent } from '../../worker/api.ts'
import { append, last } from '../parts/series.ts'
import type { Failure, Mark, Run, RunEnding } from './run.ts'
import { rankName } from './run-facts.ts'
import type { Action } from './snapshot.ts'
import { isStop } from './stop-words.ts'

/** What changes a run. */
export type RunAction = Extract<
  Action,
  {
    type:
      | 'linked'
      | 'regrouped'
      | 'config'
      | 'event'
      | 'finished'
      | 'failed'
      | 'reason'
      | 'stopping'
      | 'stepping'
      | 'download'
      | 'saving'
  }
>

/** The run after `action`. */
export function reduceRun(run: Run, action: RunAction): Run {
  // This tab's part in it is over.
  if (run.isWatched) return run
  if (action.type === 'download' || action.type === 'saving') {
    if (action.runId !== run.id) return run
    return action.type === 'saving'
      ? withSaving(run, action)
      : { ...run, download: action.download }
  }
  if (action.type === 'reason') {
    // The ranks reported only that one was lost.
    const isSame = run.end?.kind === 'failed' && run.end.code.startsWith('peer.')
    return isSame ? { ...run, lost: [], end: endedBy(action) } : run
  }
  if (run.end) return run // the first end is the one shown; what comes late belongs to no run
  switch (action.type) {
    case 'regrouped':
      return inGroup(run, action.assignment)
    case 'linked':
      return { ...run, ways: { ...run.ways, [action.peerRank]: action.kind } }
    case 'config':
      return { ...run, config: action.config, phase: 'load' }
    case 'event':
      return reduceEvent(run, action.event, action.atMs)
    case 'stopping':
      return { ...run, isStopping: true }
    case 'stepping':
      if (action.isStepping) return { ...run, isStepping: run.paused !== null }
      // A person resumes before the step that was let pass has ended: no pause follows it.
      return { ...run, isStepping: false, paused: run.isStepping ? null : run.paused }
    case 'finished':
      return {
        ...run,
        step: action.result.steps,
        end: { kind: 'finished', result: action.result, bytesSent: action.bytesSent },
      }
    case 'failed':
      return { ...run, end: endedBy(action) }
  }
}

function endedBy({ type: _, ...failure }: Extract<RunAction, Failure>): RunEnding {
  const { code, text } = failure
  return { ...failure, kind: code === 'peer.aborted' && isStop(text) ? 'stopped' : 'failed' }
}

/** The run in the group in which it continues. */
function inGroup(run: Run, { epoch, rank, worldSize, members, links }: Assignment): Run {
  const without = (some: Assignment['members'], others: Assignment['members']) =>
    some.filter(({ id }) => !others.some((one) => one.id === id)).map(({ name }) => name)
  const change = { left: without(run.members, members), came: without(members, run.members) }
  // After a lost device, or with states that differ, the same ranks form a group again.
  const isChanged = change.left.length + change.came.length > 0
  return {
    ...run,
    epoch,
    rank,
    worldSize,
    members,
    peers: links.map(({ peerRank }) => peerRank),
    ways: Object.fromEntries(links.map(({ peerRank, kind }) => [peerRank, kind])),
    changes: isChanged ? [...run.changes, change] : run.changes,
    regrouped: isChanged ? null : run.regrouped,
    assigned: null,
    silent: [],
  }
}

/** Of a member of an elastic run, by its life. */
const nameIn = ({ members }: Run, life: string): string =>
  members.find(({ id }) => id === memberOf(life))?.name ?? life

/** Counts a step once, of however many buckets. */
function withLeftOut(
  { leftOut, members }: Run,
  ranks: readonly number[],
  step: number,
): Run['leftOut'] {
  const counted = new Map(leftOut)
  for (const rank of ranks) {
    const name = members[rank]?.name ?? `rank ${rank}`
    const { steps = 0, newest = -1 } = counted.get(name) ?? {}
    if (newest < step) counted.set(name, { steps: steps + 1, newest: step })
  }
  return counted
}

/** A person saves, in a run and behind its end. */
function withSaving(run: Run, { saving, file }: Extract<RunAction, { type: 'saving' }>): Run {
  if (!file) return { ...run, saving }
  return { ...run, saving, saved: { step: file.step, name: file.name, isKept: true } }
}

/** The settings of a run are those of its next step. */
function withChange(run: Run, { step, key, to, by }: Extract<RunEvent, { event: 'changed' }>): Run {
  const name = by === undefined ? undefined : run.members[by]?.name
  const changed = { ...run.changed, [key]: { step, by: name ?? null } }
  return { ...run, changed, config: run.config && { ...run.config, [key]: to } }
}

function keepForLog(logged: Run['logged'], event: RunEvent): void {
  switch (event.event) {
    case 'step':
      if (event.stateHash !== undefined)
        logged.push({ event: 'step', step: event.step, stateHash: event.stateHash })
      break
    case 'group':
    case 'assigned':
    case 'devices':
    case 'changed':
    case 'unlike':
      logged.push(event)
  }
}

function reduceEvent(run: Run, event: RunEvent, atMs: number): Run {
  keepForLog(run.logged, event)
  switch (event.event) {
    case 'phase': {
      // Most tests take less time than a person needs to read that there is one.
      if (event.phase === 'evaluate') return { ...run, testingSinceMs: atMs }
      const begins = event.phase === 'train'
      return {
        ...run,
        phase: event.phase,
        recent: begins ? [markOf(run, atMs)] : run.recent,
        trainingSinceMs: run.trainingSinceMs ?? (begins ? atMs : null),
        testingSinceMs: null,
      }
    }
    case 'given':
    case 'state':
      return { ...run, given: { doneBytes: event.doneBytes, totalBytes: event.totalBytes } }
    case 'waits':
      return { ...run, waits: event.why === null ? null : { who: event.who, why: event.why } }
    case 'holdsUp': {
      const { who, why } = event
      const isSelf = who !== null && memberOf(who) === run.members[run.rank]?.id
      const name = who === null || isSelf ? null : nameIn(run, who)
      return { ...run, heldUp: why === null ? null : { name, why } }
    }
    case 'broke':
      return { ...run, broke: { who: event.name ?? 'A tab', what: event.what } }
    case 'divided':
      return { ...run, held: event.held }
    case 'group':
      return {
        ...run,
        assigned: { samples: event.members.map(({ samples }) => samples), step: event.step },
      }
    case 'assigned':
      return { ...run, assigned: { samples: event.samples, step: event.step } }
    case 'leftOut':
      return { ...run, leftOut: withLeftOut(run, event.ranks, event.step ?? run.step + 1) }
    case 'unlike': {
      const { step, text, isLasting, ranks } = event
      const who = ranks.map((rank) => run.members[rank]?.name ?? `rank ${rank}`)
      return { ...run, unlike: [...run.unlike, { step, who, text, isLasting }] }
    }
    case 'regrouped':
      return {
        ...run,
        regrouped:
          run.joins || run.changes.length > 0
            ? (run.regrouped ?? { step: event.step, worldSize: event.worldSize })
            : null,
        joins: false,
        lostName: null,
        waits: null,
        silent: [],
      }
    case 'lost': {
      // The page hears of the next group before it has begun, and that numbers its ranks in another way.
      const { who } = event
      const isKnown = who !== null && who < run.members.length
      return { ...run, lostName: isKnown ? rankName(run, who) : 'a rank', given: null }
    }
    case 'undecided':
      return {
        ...run,
        undecided: event.missing && {
          missing: event.missing.map((id) => nameIn(run, id)),
          hadMore: event.hadMore,
          step: event.step,
        },
      }
    case 'roster':
    case 'half':
      return { ...run, waits: null, heldUp: null }
    case 'unlinked':
    case 'signal':
    case 'devices':
    case 'unsaved':
      return run
    case 'silent': {
      // It may be of the group before this one, which had more ranks.
      if (event.who >= run.members.length) return run
      const others = run.silent.filter((rank) => rank !== event.who)
      return { ...run, silent: event.isSilent ? [...others, event.who] : others }
    }
    case 'resumed':
      return {
        ...run,
        step: event.step,
        dataEpoch: event.epoch,
        resumed: { step: event.step, holders: event.holders, differences: event.differences },
      }
    case 'checkpoint':
      return {
        ...run,
        saved: { step: event.step, name: event.name, isKept: event.isKept ?? false },
      }
    case 'samples':
      return {
        ...run,
        sampledSteps: [...run.sampledSteps.slice(1 - maxSampleSets), event.samples],
      }
    case 'paused':
      return { ...run, paused: { step: event.step, by: event.by }, isStepping: false }
    case 'continued':
      return {
        ...run,
        paused: run.isStepping ? run.paused : null,
        pausedMs: run.pausedMs + event.pausedMs,
      }
    case 'changed':
      return withChange(run, event)
    case 'evaluation':
      return {
        ...withTest(run, event.step, atMs),
        accuracy: append(run.accuracy, event.step, event.value),
        heldOutLoss: append(run.heldOutLoss, event.step, event.loss),
      }
    case 'step': {
      const { step, totalSteps, epoch, loss, bytesSent, stateHash } = event
      const samples = run.samples + event.samples
      const seconds = (atMs - run.pausedMs - (run.trainingSinceMs ?? atMs)) / 1000
      const globalSamples = (last(run.globalSamples) || 0) + event.globalSamples
      const stepped = {
        ...run,
        phase: 'train',
        testingSinceMs: null,
        step,
        totalSteps,
        dataEpoch: epoch,
        loss: append(run.loss, step, loss),
        trainMetric: append(run.trainMetric, step, event.value),
        seconds: append(run.seconds, step, seconds),
        fullestStep: Math.max(run.fullestStep, event.globalSamples),
        globalSamples: append(run.globalSamples, step, globalSamples),
        samples,
        bytesSent,
        stateHash: stateHash ?? null,
        // A device that was lost begins a new count.
        firstBytes:
          run.firstBytes === null || bytesSent < run.firstBytes ? bytesSent : run.firstBytes,
        parts: blend(run.parts, event.times),
      } as const
      return { ...stepped, recent: addMark(run.recent, markOf(stepped, atMs)) }
    }
  }
}

/** Tests of which is known how long they took: enough for a mean, few enough to follow a change. */
const maxTests = 5

/** The time of a test is known where its beginning was reported; the phase stays until the next step, or the end. */
function withTest(run: Run, step: number, atMs: number): Run {
  const { testingSinceMs, tests, testedMs } = run
  if (testingSinceMs === null) return run
  const ms = atMs - testingSinceMs
  return {
    ...run,
    testingSinceMs: null,
    tests: [...tests.slice(1 - maxTests), { step, ms }],
    testedMs: testedMs + ms,
  }
}

/** Sampled steps that are kept, for looking back and for the trace. */
export const maxSampleSets = 60

/** Share of the newest step in the moving average of its parts. */
const blendShare = 0.1

function blend(old: StepParts | null, now: StepParts): StepParts {
  if (!old) return { ...now }
  const keys = Object.keys(now) as (keyof StepParts)[]
  const mixed = keys.map((key) => [key, old[key] + blendShare * (now[key] - old[key])])
  return Object.fromEntries(mixed) as unknown as StepParts
}

/** Where the run is now. */
function markOf(run: Run, atMs: number): Mark {
  const { step, samples, pausedMs, testedMs } = run
  const globalSamples = last(run.globalSamples) || 0
  return { atMs: atMs - pausedMs - testedMs, step, samples, globalSamples }
}

/** Marks are at least this far apart, so a second of fast steps does not fill the list. units: ms. */
const markEveryMs = 100
/** Rates are means over about this time. units: ms. */
const rateWindowMs = 3000

/** The marks with one more, without those that rates need no more. */
function addMark(recent: readonly Mark[], mark: Mark): readonly Mark[] {
  const newest = recent.at(-1)
  const before = recent.at(-2)
  // The newest mark is always the present; it stays as history only when the one before it is old enough.
  const kept =
    newest && before && newest.atMs - before.atMs < markEveryMs ? recent.slice(0, -1) : recent
  const begin = kept.findIndex(({ atMs }) => mark.atMs - atMs <= rateWindowMs)
  // Steps longer than the window still need one mark to differ from.
  return [...kept.slice(begin < 0 ? -1 : begin), mark]
}
