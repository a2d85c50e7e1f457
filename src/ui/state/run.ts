import type { AssignedLink, Assignment } from '../../peer/room/messages.ts'
import type { LiveKey, TrainConfig } from '../../trainer/settings/config.ts'
import type { RankPart, StepParts } from '../../trainer/watch/run-events.ts'
import type { LoggedEvent } from '../../trainer/watch/run-log.ts'
import type { StepSample } from '../../trainer/watch/step-sample.ts'
import type { EndFacts } from '../../util/errors.ts'
import type { RunResult } from '../../worker/api.ts'
import { emptySeries, type Series } from '../parts/series.ts'

/** A run as this tab sees it. */

export type Phase = 'connect' | 'load' | 'broadcast' | 'compile' | 'train' | 'evaluate'

/** Where the run was at one moment; rates are differences of two. */
export interface Mark {
  /** By a clock that stands still in pauses and tests. */
  readonly atMs: number
  readonly step: number
  /** Of this rank so far. */
  readonly samples: number
  /** Of all ranks so far. */
  readonly globalSamples: number
}

/** A test that is over. */
export interface TestTaken {
  readonly step: number
  readonly ms: number
}

export interface Run {
  /** Of this tab's runs. */
  readonly id: string
  /** units: ms of Unix time. */
  readonly startedAtMs: number
  /** How its line looks (run/run-looks.ts). */
  readonly slot: number
  readonly epoch: number
  readonly rank: number
  readonly worldSize: number
  /** True if this tab has no rank in it: all is as the rank `rank` sees it. */
  readonly isWatched: boolean
  /** True if the run was on when this tab got its rank. */
  readonly joins: boolean
  readonly members: Assignment['members']
  /** Those that this rank is linked to. */
  readonly peers: readonly number[]
  /** Ranks whose going ended the run; empty during the run, and after any other end. */
  readonly lost: readonly number[]
  /** By rank: this rank's links that are up, as they go. */
  readonly ways: Readonly<Record<number, AssignedLink['kind']>>
  readonly config: TrainConfig | null
  /** A short test does not change it: `evaluate` is one that lasts (`watchTests`). */
  readonly phase: Phase
  readonly step: number
  readonly totalSteps: number
  /** Of the data, from 0. */
  readonly dataEpoch: number
  /** By step. */
  readonly loss: Series
  /** The demo's metric over the samples of each step, as the model was before it. */
  readonly trainMetric: Series
  /** The metric over held-out samples: for most demos the accuracy. */
  readonly accuracy: Series
  readonly heldOutLoss: Series
  /** Of all ranks so far, by step. */
  readonly globalSamples: Series
  /** Samples of the largest step so far, over all ranks: fewer than the batch size where there is less data. */
  readonly fullestStep: number
  /** Since training began, by step; pauses do not count. */
  readonly seconds: Series
  /** `atMs` of that beginning. */
  readonly trainingSinceMs: number | null
  /** One step of each rank about every second, the newest last. */
  readonly sampledSteps: readonly (readonly StepSample[])[]
  /** Samples of this rank so far. */
  readonly samples: number
  readonly bytesSent: number
  /** What it had sent when its first step had ended: parameters, measuring the links, and that step's gradients; null before. */
  readonly firstBytes: number | null
  /** Moving average over about ten steps. units: ms. */
  readonly parts: StepParts | null
  /** How much of what a person gave, or of a run's state, has gone to ranks that lack it; null before. */
  readonly given: { readonly doneBytes: number; readonly totalBytes: number } | null
  /** What each rank holds of a model that is divided over them; null where each has all of it. */
  readonly held: readonly RankPart[] | null
  /** Of a run with `exact`: what its log takes. Snapshots share it, since it only grows. */
  readonly logged: LoggedEvent[]
  /** With `exact`: of the state before the newest step; null before that. */
  readonly stateHash: string | null
  /** With `exact`: whose bits were found to differ from the run's, as in `RunEvent`; by name. */
  readonly unlike: readonly {
    readonly step: number
    readonly who: readonly string[]
    readonly text: string
    readonly isLasting: boolean
  }[]
  /** In how many steps a member's gradients did not count, by name, and the newest of these. */
  readonly leftOut: ReadonlyMap<string, { readonly steps: number; readonly newest: number }>
  /** By rank, of a full step, since `step`; null while they are as even as the settings have them. */
  readonly assigned: { readonly samples: readonly number[]; readonly step: number } | null
  /** From which step on settings have the values of `config` that they did not begin with. */
  readonly changed: Partial<Record<LiveKey, { readonly step: number; readonly by: string | null }>>
  /** The last few seconds of training, without pauses and tests. */
  readonly recent: readonly Mark[]
  /** `atMs` of the test that is under way. */
  readonly testingSinceMs: number | null
  /** The last few tests. */
  readonly tests: readonly TestTaken[]
  /** In tests that are over. */
  readonly testedMs: number
  /** The checkpoint that the run continues from, as rank 0 reports it. */
  readonly resumed: {
    readonly step: number
    /** Ranks that have a file of it, where they were asked. */
    readonly holders?: number
    readonly differences: readonly string[]
  } | null
  /** Who has left an elastic run and who has come, group by group, by name. */
  readonly changes: readonly {
    readonly left: readonly string[]
    readonly came: readonly string[]
  }[]
  /** The step after which an elastic run continued with other ranks, the newest time; null before. */
  readonly regrouped: { readonly step: number; readonly worldSize: number } | null
  /** The rank whose loss an elastic run handles until its next group begins; null while it trains. */
  readonly lostName: string | null
  /**
   * An elastic run waits for these, by name, until a person decides; null while it does not. `hadMore`: they had newer steps than any tab here.
   * `step`: the newest here, null where no tab has the run's state.
   */
  readonly undecided: {
    readonly missing: readonly string[]
    readonly hadMore: boolean
    readonly step: number | null
  } | null
  /** Which newcomer to an elastic run, by its id as a member, is not let in yet, and why; perhaps this tab. Null for none. */
  readonly waits: { readonly who: string; readonly why: string } | null
  /** Whose connection holds up the steps of an elastic run, null for that of this tab, and how; null while none does. */
  readonly heldUp: { readonly name: string | null; readonly why: string } | null
  /** Who last sent what no build of this project sends, and what that was; null for nobody. */
  readonly broke: { readonly who: string; readonly what: string } | null
  /** Linked ranks that have not answered for some seconds. */
  readonly silent: readonly number[]
  /** All ranks hold behind this step; by those ranks. */
  readonly paused: { readonly step: number; readonly by: readonly number[] } | null
  /** One step is let pass: the pause continues after it, and the page shows it all the while. */
  readonly isStepping: boolean
  /** In pauses that are over. */
  readonly pausedMs: number
  /** The newest checkpoint of it in this browser. */
  readonly saved: SavedCheckpoint | null
  /** What came of the last time that a person wanted one. */
  readonly saving: Saving
  readonly isStopping: boolean
  readonly end: RunEnding | null
  /** It has ended, and so has the room's run: one that is on is another. */
  readonly isPast: boolean
  readonly download: Download
}

export type RunEnding =
  | {
      readonly kind: 'finished'
      readonly result: RunResult
      /** As the browser's data channels count, where there were some; else as the worker counts. */
      readonly bytesSent: number
    }
  | (Failure & { readonly kind: 'stopped' | 'failed' })

/** By what a run ended on this rank. */
export interface Failure extends EndFacts {
  readonly code: string
  readonly text: string
}

export interface SavedCheckpoint {
  readonly step: number
  readonly name: string
  /** A person wanted it. */
  readonly isKept: boolean
}

export type Saving =
  | { readonly is: 'idle' | 'busy' }
  | { readonly is: 'done'; readonly step: number }
  | { readonly is: 'failed'; readonly text: string }

export type Download =
  | { readonly is: 'idle' | 'busy' | 'done' }
  | { readonly is: 'failed'; readonly text: string }

/** A run that this tab has just been assigned its rank in. */
export function newRun(
  slot: number,
  { assignment, startedAtMs }: { readonly assignment: Assignment; readonly startedAtMs: number },
): Run {
  const { epoch, run, rank, worldSize, members, links } = assignment
  return {
    id: `${startedAtMs}-${epoch}`,
    startedAtMs,
    slot,
    epoch,
    rank,
    worldSize,
    isWatched: false,
    joins: run !== undefined && run !== epoch,
    members,
    peers: links.map(({ peerRank }) => peerRank),
    lost: [],
    ways: {},
    config: null,
    phase: 'connect',
    step: 0,
    totalSteps: 0,
    dataEpoch: 0,
    loss: emptySeries,
    trainMetric: emptySeries,
    accuracy: emptySeries,
    heldOutLoss: emptySeries,
    globalSamples: emptySeries,
    fullestStep: 0,
    seconds: emptySeries,
    trainingSinceMs: null,
    sampledSteps: [],
    samples: 0,
    bytesSent: 0,
    firstBytes: null,
    parts: null,
    given: null,
    held: null,
    assigned: null,
    logged: [],
    stateHash: null,
    unlike: [],
    leftOut: new Map(),
    changed: {},
    recent: [],
    testingSinceMs: null,
    tests: [],
    testedMs: 0,
    resumed: null,
    regrouped: null,
    lostName: null,
    undecided: null,
    waits: null,
    heldUp: null,
    broke: null,
    silent: [],
    changes: [],
    paused: null,
    isStepping: false,
    pausedMs: 0,
    saved: null,
    saving: { is: 'idle' },
    isStopping: false,
    end: null,
    isPast: false,
    download: { is: 'idle' },
  }
}
