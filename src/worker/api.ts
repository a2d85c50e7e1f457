import type { AdapterFacts } from '../gpu/device.ts'
import type { Transport } from '../peer/channel-transport.ts'
import type { LinkStats } from '../peer/link.ts'
import type { TrainConfig } from '../train/config.ts'
import type { RunEvent, TrainerResult } from '../train/run.ts'
import type { DeviceType } from '../util/device.ts'
import type { TraceEvent } from '../util/spans.ts'
import type { GivenSwitches } from '../util/switches.ts'

export type { AdapterFacts } from '../gpu/device.ts'
export type { Transport } from '../peer/channel-transport.ts'
export type { RunEvent, RunRecord } from '../train/run.ts'

/**
 * What the page and its compute worker say to each other through Comlink: control and small numbers, never tensors.
 */

/** A rank's place in one epoch of a group. */
export interface Membership {
  epoch: number
  rank: number
  worldSize: number
}

/** Where a run's checkpoints are, if not in this browser's private files; rank 0's counts. Addresses are relative to the page's. */
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

/** The worker's methods. Every pending call rejects with `worker.dead` when the worker ends. */
export interface ComputeApi {
  /** Takes the page's switches over and opens the device; `cpu`, which is slow, only where the user agreed. errors: `gpu.unavailable`. */
  open(device?: DeviceType, switches?: GivenSwitches): Promise<AdapterFacts>
  /** Gives the worker the transport to `peerRank`; the newest for a rank and epoch counts. */
  addLink(epoch: number, peerRank: number, transport: Transport, lane?: number): Promise<void>
  /**
   * Runs the experiment to its end; data addresses are relative to `baseUrl`.
   * errors: `config.invalid`, `data.*`, `gpu.*`, `peer.*`, `train.*`.
   */
  train(
    membership: Membership,
    config: TrainConfig,
    baseUrl: string,
    onEvent: (event: RunEvent) => void,
    checkpoints?: CheckpointAddress,
  ): Promise<RunResult>
  /** After a run that ended well and after the page has read its channels' statistics: says goodbye and closes the links. */
  leave(): Promise<void>
  /** Ends the run on all ranks: what is pending rejects with `reason`. A no-op when nothing runs. */
  abort(reason: string): Promise<void>
  /** The trained parameters as a `.safetensors` file behind a blob URL; the caller revokes it. errors: `graph.misuse` before a run. */
  exportParameters(): Promise<string>
  /** Spans noted while the switch `trace` was on. */
  traceEvents(): Promise<TraceEvent[]>
}
