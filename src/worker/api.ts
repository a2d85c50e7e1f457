import type { AdapterFacts } from '../gpu/device.ts'
import type { FormerLife } from '../peer/elastic/roster.ts'
import type { Transport } from '../peer/link/channel-transport.ts'
import type { LinkStats } from '../peer/link/link.ts'
import type { LifeKeys } from '../peer/room/life-keys.ts'
import type {
  CheckpointSettings,
  NotARun,
  ShelvedCheckpoint,
} from '../trainer/saves/checkpoint-shelf.ts'
import type { SavedFile } from '../trainer/saves/save-requests.ts'
import type { TrainConfig } from '../trainer/settings/config.ts'
import type { QueryAnswer, Whose } from '../trainer/settings/task.ts'
import type { Phase, RankName, RunEvent, TrainerResult } from '../trainer/watch/run-events.ts'
import type { DeviceChoice } from '../util/device.ts'
import type { TraceEvent } from '../util/spans.ts'
import type { GivenSwitches } from '../util/switches.ts'

export type { AdapterFacts } from '../gpu/device.ts'
export type { FormerLife } from '../peer/elastic/roster.ts'
export type { Transport } from '../peer/link/channel-transport.ts'
export type {
  CheckpointSettings,
  NotARun,
  ShelvedCheckpoint,
} from '../trainer/saves/checkpoint-shelf.ts'
export type { SavedFile } from '../trainer/saves/save-requests.ts'
export type { QueryAnswer, Whose } from '../trainer/settings/task.ts'
export type { RunEvent, RunRecord } from '../trainer/watch/run-events.ts'

/**
 * What the page and its compute worker say to each other through Comlink: control, small numbers, and the arrays that looks give.
 */

/** An event with the moment at which it happened. units: ms of Unix time. */
export interface TimedEvent {
  readonly event: RunEvent
  readonly atMs: number
}

/** A rank's place in one epoch of a group. */
export interface Membership {
  epoch: number
  rank: number
  worldSize: number
  /** By rank: which machine it counts to, the same on all ranks; default: nobody knows. */
  machines?: readonly number[]
  /** Of an elastic run, which continues when a rank is lost and admits newcomers. Default: it ends with the first rank that is lost. */
  elastic?: ElasticPlace
  /** True if it is on already, and this rank gets its state from the others. Default false. */
  joins?: boolean
  /** This rank as the others know it. */
  self?: RankName
  /** Who has which rank, the same on all ranks: runs in a row with the same ones measure the links once. Default: each run does. */
  who?: string
}

/** Whom a rank of an elastic run decides with who trains on (`ElasticMember`). A member's id is the name of its life (lives.ts). */
export interface ElasticPlace {
  /** The run's. */
  readonly key: string
  readonly self: string
  /** By which others know what this rank has said. */
  readonly keys: LifeKeys
  /** By rank; null for a member of a run that is on, which says itself who it is. */
  readonly ids: readonly (string | null)[]
  /** By rank: ids in the room. */
  readonly members: readonly string[]
  /** By rank: members that ports join have the same. */
  readonly machines: readonly string[]
  /** The life of this tab in the same run before this one. */
  readonly former: FormerLife | null
}

/** Members that are linked to this rank, by their ranks in `epoch`: newcomers, or those that `unlinked` has asked for, by its ballot. */
export interface Admission {
  readonly epoch: number
  readonly newcomers: readonly {
    readonly rank: number
    readonly id: string
    readonly machine: string
  }[]
}

/** Where a run's checkpoints are, if not in this browser's private files; rank 0's counts, with `exact` all do. Addresses are relative to the page's. */
export interface CheckpointAddress {
  /** A folder that takes GET, PUT and DELETE of its files. */
  folder?: string
  /** The file to resume from, whatever the folder has. */
  file?: string
  /** How many files stay, besides the best one. */
  keepLast?: number
}

export interface RunResult extends TrainerResult {
  /** Sum over this rank's links, as the worker counts messages. */
  links: LinkStats
  adapter: AdapterFacts
}

/** Who of a roster asked the server first; null where it cannot know, undefined where it is away. */
export type FirstHalf = readonly string[] | null | undefined

/** The worker's methods. Every pending call rejects with `worker.dead` when the worker ends. */
export interface ComputeApi {
  /** Takes the page's switches over and opens a device: by default that of the switch `device`. errors: `gpu.unavailable`. */
  open(choice?: DeviceChoice, switches?: GivenSwitches): Promise<AdapterFacts>
  /** GFLOP/s of the device in one fixed product (`measure/device-speed.ts`); null where a run is under way. errors: `gpu.*`. */
  speed(): Promise<number | null>
  /** Of each link of the group that is up, as its session's last PING took; NaN before the first. units: ms. */
  roundTrips(): Promise<number[]>
  /** Gives the worker the transport to `peerRank`; the newest for a rank and epoch counts. */
  addLink(epoch: number, peerRank: number, transport: Transport, lane?: number): Promise<void>
  /** Closes the links that were given for an epoch that will not begin. */
  dropLinks(epoch: number): Promise<void>
  /**
   * Warms up for a run that is on, which `train` with the same settings then joins sooner (`warmUp`); a no-op while a run is under way, and
   * where it has been done. errors: `config.invalid`, `data.*`, `gpu.*`.
   */
  prepare(config: TrainConfig, baseUrl: string, onPhase: (phase: Phase) => void): Promise<void>
  /**
   * Runs the experiment to its end; data addresses are relative to `baseUrl`. `given`: with `config.data` `given`, what a person gave on
   * this rank; the others get it from here.
   * errors: `config.invalid`, `data.*`, `gpu.*`, `peer.*`, `train.*`.
   */
  train(
    membership: Membership,
    config: TrainConfig,
    baseUrl: string,
    onEvents: (events: readonly TimedEvent[]) => void,
    checkpoints?: CheckpointAddress,
    given?: Uint8Array,
  ): Promise<RunResult>
  /** Newcomers may join the elastic run after one of the next steps, over links that were added. */
  admit(admission: Admission): Promise<void>
  /** A link that the event `unlinked` has asked for cannot be made. */
  notLinked(ballot: number, peerRank: number): Promise<void>
  /** Sends what WebRTC needs for a link that `unlinked` has asked for; others pass it on. */
  signal(ballot: number, peerRank: number, attempt: number, data: string): Promise<void>
  /** A member of the room, or one life of it, is dead for sure; `ballot`: of the newest roster that it may have been in, default: that of this rank. */
  memberIsDead(who: string, ballot?: number): Promise<void>
  /** The host, at this tab, has removed a member of the room: its links end, and those of the other ranks to it. */
  remove(member: string): Promise<void>
  /** The connection of a member to the server has ended: it is lost unless it answers. */
  doubt(member: string): Promise<void>
  /** Answers the event `half`. */
  firstHalf(ballot: number, first: FirstHalf): Promise<void>
  /** The room says that the others continue without this rank. */
  leftOut(why: string): Promise<void>
  /** After `undecided`, a person's decision: the elastic run continues without those that are missing. */
  continueWithout(): Promise<void>
  /** Asks for a pause of the run: all ranks begin it after the same step and emit `paused`. A no-op when nothing runs. */
  pause(): Promise<void>
  /** Ends the pause on all ranks, which emit `continued`, or takes back what `pause` asked for. A no-op when nothing runs. */
  goOn(): Promise<void>
  /** In a pause: all ranks take one step and pause again. A no-op when nothing runs. */
  oneStep(): Promise<void>
  /** Asks for another value of a setting, as `Trainer.change`. A no-op when nothing runs. errors: `config.invalid`. */
  change(key: string, value: unknown): Promise<void>
  /**
   * Saves a checkpoint of the run in this browser's private files, as `Trainer.save`: while it runs, in a pause, and behind its end until the
   * next one begins. errors: `graph.misuse` without a run; those of `Trainer.save`.
   */
  save(): Promise<SavedFile>
  /**
   * Returns what the demo's look `name` gives for `input`, with its arrays handed over: between two steps of the run, at once in a pause, and
   * behind the run's end until the next one begins. `whose`: the model that is asked, as in `Trainer.query`; default: `all`.
   *
   * errors: `graph.misuse` while there is no model, or when it goes meanwhile; `config.invalid` for a look or an input that cannot be; `gpu.*`.
   */
  query(name: string, input?: unknown, whose?: Whose): Promise<QueryAnswer>
  /** After a run that ended well and after the page has read its channels' statistics: says goodbye and closes the links. */
  leave(): Promise<void>
  /** Ends the run on all ranks, or on this one alone, which the others take for lost: what is pending rejects with `reason`. A no-op when nothing runs. */
  abort(reason: string, isAlone?: boolean): Promise<void>
  /** Lets go of the trained model: until the next run there is none to query or to save. A no-op while one is under way. */
  forget(): Promise<void>
  /** The trained parameters as a `.safetensors` file behind a blob URL; the caller revokes it. errors: `graph.misuse` before a run. */
  exportParameters(): Promise<string>
  /** The checkpoints of runs in this browser's private files. */
  checkpoints(): Promise<ShelvedCheckpoint[]>
  /** One of them behind a blob URL; the caller revokes it. errors: `data.*`. */
  readCheckpoint(place: string, name: string): Promise<string>
  /** The settings of the run that saved it. errors: `data.*`. */
  checkpointSettings(place: string, name: string): Promise<CheckpointSettings>
  /** Puts a file among them; what it holds, where it is no run's checkpoint. */
  addCheckpoint(file: Blob): Promise<CheckpointSettings | NotARun>
  removeCheckpoint(place: string, name: string): Promise<void>
  /** Spans noted while the switch `trace` was on. */
  traceEvents(): Promise<TraceEvent[]>
}
