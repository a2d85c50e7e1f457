import type {
  AssignedLink,
  Assignment,
  Lobby,
  LobbyMember,
  ServerFacts,
  TransportChoice,
} from '../peer/messages.ts'
import type { TrainConfig } from '../train/config.ts'
import type { StepParts } from '../train/run.ts'
import type { StepSample } from '../train/step-sample.ts'
import type { AdapterFacts, RunEvent, RunResult, ShelvedCheckpoint } from '../worker/api.ts'
import { type KeptRun, nextSlot, type RunsAction, reduceRuns } from './runs/kept-runs.ts'
import { append, emptySeries, last, type Series } from './series.ts'
import { noFacts } from './server-facts.ts'
import { type Draft, type SettingKey, withSetting } from './settings.ts'
import type { Trouble } from './trouble.ts'

/**
 * Everything the page shows, and how it comes to change: one snapshot, one list of actions, one pure reducer.
 *
 * Times come in with the actions (`atMs`, any origin), so a recorded list of actions gives the same snapshots again.
 */

export interface Snapshot {
  /**
   * opening: the device; entering: the room; inside; outside: `trouble` says why.
   */
  readonly stage: 'opening' | 'entering' | 'inside' | 'outside'
  readonly trouble: Trouble | null
  /** The room's address on this page, without a query: `inviteLink` makes it the link for others. Empty where there is no room. */
  readonly invite: string
  /** What the page's server offers; nothing before it has answered. */
  readonly server: ServerFacts
  readonly name: string
  readonly adapter: AdapterFacts | null
  readonly ownId: string | null
  readonly lobby: Lobby | null
  /** The connection to the signaling server has ended, with its words. */
  readonly serverLost: string | null
  /** The server's last no, until something else happens. */
  readonly refusal: string | null
  readonly draft: Draft
  /** The links that this tab entered the room with. */
  readonly transport: TransportChoice
  /** With how many ranks this tab entered. */
  readonly ranks: number
  /** The server relays links; false before it has said so. */
  readonly hasRelay: boolean
  /** The current run of this tab, or its last one. */
  readonly run: Run | null
  /** The runs of this tab that have ended, the oldest first. */
  readonly runs: readonly KeptRun[]
  /** Of runs in this browser's private files; null before they are known. */
  readonly checkpoints: readonly ShelvedCheckpoint[] | null
  /** What came of the last thing that was done with them. */
  readonly checkpointNote: { readonly text: string; readonly isError: boolean } | null
}

export type Phase = 'connect' | 'load' | 'broadcast' | 'compile' | 'train' | 'evaluate'

/** Where the run was at one moment; rates are differences of two. */
export interface Mark {
  readonly atMs: number
  readonly step: number
  readonly samples: number
  readonly bytesSent: number
}

export interface Run {
  /** Of this tab's runs. */
  readonly id: string
  /** units: ms of Unix time. */
  readonly startedAtMs: number
  /** How its line looks (runs/run-looks.ts). */
  readonly slot: number
  readonly epoch: number
  readonly rank: number
  readonly worldSize: number
  readonly members: Assignment['members']
  /** Those that this rank is linked to. */
  readonly peers: readonly number[]
  /** By rank: this rank's links that are up, as they go. */
  readonly ways: Readonly<Record<number, AssignedLink['kind']>>
  readonly config: TrainConfig | null
  readonly phase: Phase
  readonly step: number
  readonly totalSteps: number
  /** Of the data, from 0. */
  readonly dataEpoch: number
  /** By step. */
  readonly loss: Series
  /** Of held-out samples: what the demo's meta says, for most the accuracy. */
  readonly accuracy: Series
  /** Of all ranks so far, by step. */
  readonly globalSamples: Series
  /** Since training began, by step; pauses do not count. */
  readonly seconds: Series
  /** `atMs` of that beginning. */
  readonly trainingSinceMs: number | null
  /** One step of each rank about every second, the newest last. */
  readonly sampledSteps: readonly (readonly StepSample[])[]
  /** Samples of this rank so far. */
  readonly samples: number
  readonly bytesSent: number
  /** Moving average over about ten steps. units: ms. */
  readonly parts: StepParts | null
  /** How much of what a person gave has gone from its rank to all; null where nobody gave anything, or no one else is there. */
  readonly given: { readonly doneBytes: number; readonly totalBytes: number } | null
  /** The last few seconds of training without a pause. */
  readonly recent: readonly Mark[]
  /** The checkpoint that the run goes on from, as rank 0 tells of it. */
  readonly resumed: { readonly step: number; readonly differences: readonly string[] } | null
  /** All ranks hold behind this step; by those ranks. */
  readonly paused: { readonly step: number; readonly by: readonly number[] } | null
  /** In pauses that are over. */
  readonly pausedMs: number
  /** How many this tab has saved in it. */
  readonly checkpoints: number
  readonly isStopping: boolean
  readonly end: RunEnding | null
  readonly download: Download
}

export type RunEnding =
  | {
      readonly kind: 'finished'
      readonly result: RunResult
      /** As the browser's data channels count, where there were some; else as the worker counts. */
      readonly bytesSent: number
    }
  | {
      readonly kind: 'stopped' | 'failed'
      readonly code: string
      readonly text: string
    }

export type Download =
  | { readonly is: 'idle' | 'busy' | 'done' }
  | { readonly is: 'failed'; readonly text: string }

export type Action =
  | { type: 'deviceOpened'; adapter: AdapterFacts }
  | { type: 'entered'; hasRelay: boolean }
  | { type: 'outside'; trouble: Trouble }
  | { type: 'lobby'; lobby: Lobby; ownId: string | null }
  | RunsAction
  | { type: 'assigned'; assignment: Assignment; startedAtMs: number }
  | { type: 'linked'; peerRank: number; kind: AssignedLink['kind'] }
  | { type: 'config'; config: TrainConfig }
  | { type: 'event'; event: RunEvent; atMs: number }
  | { type: 'finished'; result: RunResult; bytesSent: number }
  | { type: 'failed'; code: string; text: string }
  | { type: 'stopping' }
  | { type: 'server'; facts: ServerFacts }
  | { type: 'serverLost'; text: string }
  | { type: 'refused'; text: string }
  | { type: 'setting'; key: SettingKey; value: string }
  | { type: 'named'; name: string }
  | { type: 'download'; download: Download }
  | { type: 'checkpoints'; files: readonly ShelvedCheckpoint[] }
  | { type: 'checkpointNote'; text: string; isError: boolean }

export interface Beginning {
  invite: string
  name: string
  draft: Draft
  transport: TransportChoice
  ranks?: number
}

export function begin({ invite, name, draft, transport, ranks = 1 }: Beginning): Snapshot {
  return {
    stage: 'opening',
    trouble: null,
    invite,
    server: noFacts,
    name,
    adapter: null,
    ownId: null,
    lobby: null,
    serverLost: null,
    refusal: null,
    draft,
    transport,
    ranks,
    hasRelay: false,
    run: null,
    runs: [],
    checkpoints: null,
    checkpointNote: null,
  }
}

/** The snapshot after `action`. */
export function reduce(snapshot: Snapshot, action: Action): Snapshot {
  const next = reduceRest(snapshot, action)
  const runs = reduceRuns(snapshot, next, action)
  return runs === next.runs ? next : { ...next, runs }
}

function reduceRest(snapshot: Snapshot, action: Action): Snapshot {
  switch (action.type) {
    case 'deviceOpened':
      return { ...snapshot, stage: 'entering', adapter: action.adapter }
    case 'entered':
      return { ...snapshot, stage: 'inside', hasRelay: action.hasRelay }
    case 'outside':
      // The first trouble is the one shown.
      return snapshot.stage === 'outside'
        ? snapshot
        : { ...snapshot, stage: 'outside', trouble: action.trouble }
    case 'lobby':
      return { ...snapshot, lobby: action.lobby, ownId: action.ownId }
    case 'assigned':
      return { ...snapshot, refusal: null, run: newRun(snapshot, action) }
    case 'server':
      return { ...snapshot, server: action.facts }
    case 'serverLost':
      return { ...snapshot, serverLost: action.text }
    case 'refused':
      return { ...snapshot, refusal: action.text }
    case 'setting': {
      const draft = withSetting(snapshot.draft, action.key, action.value)
      return { ...snapshot, draft, refusal: null }
    }
    case 'named':
      return { ...snapshot, name: action.name }
    case 'checkpoints':
      return { ...snapshot, checkpoints: action.files }
    case 'checkpointNote':
      return { ...snapshot, checkpointNote: { text: action.text, isError: action.isError } }
    case 'runsLoaded':
    case 'runShown':
    case 'runNamed':
    case 'runDeleted':
      return snapshot
    default:
      return { ...snapshot, run: snapshot.run && reduceRun(snapshot.run, action) }
  }
}

type RunAction = Extract<
  Action,
  { type: 'linked' | 'config' | 'event' | 'finished' | 'failed' | 'stopping' | 'download' }
>

function newRun(
  snapshot: Snapshot,
  { assignment, startedAtMs }: Extract<Action, { type: 'assigned' }>,
): Run {
  const { epoch, rank, worldSize, members, links } = assignment
  return {
    id: `${startedAtMs}-${epoch}`,
    startedAtMs,
    slot: nextSlot(snapshot),
    epoch,
    rank,
    worldSize,
    members,
    peers: links.map(({ peerRank }) => peerRank),
    ways: {},
    config: null,
    phase: 'connect',
    step: 0,
    totalSteps: 0,
    dataEpoch: 0,
    loss: emptySeries,
    accuracy: emptySeries,
    globalSamples: emptySeries,
    seconds: emptySeries,
    trainingSinceMs: null,
    sampledSteps: [],
    samples: 0,
    bytesSent: 0,
    parts: null,
    given: null,
    recent: [],
    resumed: null,
    paused: null,
    pausedMs: 0,
    checkpoints: 0,
    isStopping: false,
    end: null,
    download: { is: 'idle' },
  }
}

function reduceRun(run: Run, action: RunAction): Run {
  if (action.type === 'download') return { ...run, download: action.download }
  if (run.end) return run // the first end is the one shown; what comes late belongs to no run
  switch (action.type) {
    case 'linked':
      return { ...run, ways: { ...run.ways, [action.peerRank]: action.kind } }
    case 'config':
      return { ...run, config: action.config, phase: 'load' }
    case 'event':
      return reduceEvent(run, action.event, action.atMs)
    case 'stopping':
      return { ...run, isStopping: true }
    case 'finished':
      return {
        ...run,
        step: action.result.steps,
        end: { kind: 'finished', result: action.result, bytesSent: action.bytesSent },
      }
    case 'failed': {
      const { code, text } = action
      return { ...run, end: { kind: isStop(text) ? 'stopped' : 'failed', code, text } }
    }
  }
}

function reduceEvent(run: Run, event: RunEvent, atMs: number): Run {
  switch (event.event) {
    case 'phase': {
      const begins = event.phase === 'train'
      const { samples, bytesSent } = run
      const recent = begins ? [{ atMs, step: run.step, samples, bytesSent }] : run.recent
      const trainingSinceMs = run.trainingSinceMs ?? (begins ? atMs : null)
      return { ...run, phase: event.phase, recent, trainingSinceMs }
    }
    case 'given':
      return { ...run, given: { doneBytes: event.doneBytes, totalBytes: event.totalBytes } }
    case 'resumed':
      return {
        ...run,
        step: event.step,
        dataEpoch: event.epoch,
        resumed: { step: event.step, differences: event.differences },
      }
    case 'checkpoint':
      return { ...run, checkpoints: run.checkpoints + 1 }
    case 'samples':
      return {
        ...run,
        sampledSteps: [...run.sampledSteps.slice(1 - mostSampleSets), event.samples],
      }
    case 'paused':
      return { ...run, paused: { step: event.step, by: event.by } }
    case 'continued': {
      // The time between must not count as a slow step.
      const { step, samples, bytesSent } = run
      const pausedMs = run.pausedMs + event.pausedMs
      return { ...run, paused: null, pausedMs, recent: [{ atMs, step, samples, bytesSent }] }
    }
    case 'evaluation':
      return { ...run, accuracy: append(run.accuracy, event.step, event.value) }
    case 'step': {
      const { step, totalSteps, epoch, loss, bytesSent } = event
      const samples = run.samples + event.samples
      const seconds = (atMs - run.pausedMs - (run.trainingSinceMs ?? atMs)) / 1000
      const globalSamples = (last(run.globalSamples) || 0) + event.globalSamples
      const mark = { atMs, step, samples, bytesSent }
      // Nothing announces that training goes on after a test; the pause must not count as slow steps.
      const isResumed = run.phase !== 'train'
      return {
        ...run,
        phase: 'train',
        step,
        totalSteps,
        dataEpoch: epoch,
        loss: append(run.loss, step, loss),
        seconds: append(run.seconds, step, seconds),
        globalSamples: append(run.globalSamples, step, globalSamples),
        samples,
        bytesSent,
        parts: blend(run.parts, event.times),
        recent: isResumed ? [mark] : addMark(run.recent, mark),
      }
    }
  }
}

/** Sampled steps that are kept, for looking back and for the trace. */
export const mostSampleSets = 60

/** Marks are at least this far apart, so a second of fast steps does not fill the list. units: ms. */
const markEveryMs = 100
/** Rates are means over about this time. units: ms. */
const rateWindowMs = 3000

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

/** Share of the newest step in the moving average of its parts. */
const blendShare = 0.1

function blend(old: StepParts | null, now: StepParts): StepParts {
  if (!old) return { ...now }
  const mix = (key: keyof StepParts) => old[key] + blendShare * (now[key] - old[key])
  return {
    data: mix('data'),
    forward: mix('forward'),
    backward: mix('backward'),
    wait: mix('wait'),
    wire: mix('wire'),
    optimizer: mix('optimizer'),
    total: mix('total'),
  }
}

// --- a stop that people asked for travels as the reason of an abort ---

const stopMark = 'stopped by '

/** The reason that all ranks get when `name` stops a run. */
export function stopReason(name: string): string {
  return `${stopMark}${name}.`
}

function isStop(text: string): boolean {
  return text.includes(stopMark)
}

/** Who stopped the run, from the text that it ended with. */
export function stoppedBy(text: string): string {
  return text.slice(text.indexOf(stopMark) + stopMark.length).replace(/\.$/, '')
}

// --- what views ask ---

/** How many tabs the members are of: the ranks of one tab are several members. */
export function tabCount({ members }: Lobby): number {
  return new Set(members.map(({ tab, id }) => tab ?? id)).size
}

export function ownMember({ lobby, ownId }: Snapshot): LobbyMember | null {
  return lobby?.members.find(({ id }) => id === ownId) ?? null
}

export function isMaker({ lobby, ownId }: Snapshot): boolean {
  return lobby !== null && lobby.maker === ownId
}

export function makerName({ lobby }: Snapshot): string {
  return lobby?.members.find(({ id }) => id === lobby.maker)?.name ?? 'the maker'
}

/** A run of this tab goes on. */
export function isRunning({ run }: Snapshot): boolean {
  return run !== null && run.end === null
}

/** The room is in a run that this tab is not part of. */
export function isWaitingForNext(snapshot: Snapshot): boolean {
  const { lobby } = snapshot
  if (!lobby || isRunning(snapshot)) return false
  const isOn = lobby.state === 'assigned' || lobby.state === 'running'
  return isOn && ownMember(snapshot)?.rank === null
}

export function canStart(snapshot: Snapshot): boolean {
  const { stage, lobby, serverLost } = snapshot
  if (stage !== 'inside' || !lobby || serverLost !== null) return false
  const isOn = lobby.state === 'assigned' || lobby.state === 'running'
  return isMaker(snapshot) && !isOn && !isRunning(snapshot)
}

/** Ranks that this tab had no link to yet when the run ended because one could not be reached. */
export function unreachedRanks({ run }: Snapshot): readonly number[] {
  if (run?.end?.kind !== 'failed' || run.end.code !== 'peer.unreachable') return []
  return run.peers.filter((rank) => !(rank in run.ways))
}

/** Ranks of the run that are not in the room any more. */
export function goneRanks({ run, lobby }: Snapshot): readonly number[] {
  if (!run || !lobby) return []
  return run.members.flatMap(({ id }, rank) => {
    const member = lobby.members.find((one) => one.id === id)
    return member?.attached ? [] : [rank]
  })
}
