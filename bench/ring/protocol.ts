import type { InitProcessGroupOptions } from '../../src/distributed/group/form-group.ts'
import type { Algorithm } from '../../src/peer/algorithms/operations.ts'
import type { LinkMeasurement } from '../../src/peer/group/measure-links.ts'
import type { Transport } from '../../src/worker/api.ts'

/** One measured size. */
export interface RingTask {
  /** Bytes of the buffer that is reduced, per rank. */
  sizeBytes: number
  rounds: number
  /** Collectives, or raw transfers, back to back in one timed sample. */
  repeats: number
  /** Rounds before these, not counted. */
  warmUps: number
}

/** Milliseconds per transfer on this rank, by round. */
export interface RingTimes {
  ringMs: number[]
  rawMs: number[]
  /** DATA frames and the other frames that the last ring sample sent. */
  frames: { data: number; control: number }
}

export const timedOperations = ['allReduce', 'reduceScatter', 'allGather', 'broadcast'] as const
export type TimedOperation = (typeof timedOperations)[number]

/** One collective at one size. */
export interface CollectiveTask {
  operation: TimedOperation
  algorithm: Algorithm
  /** Bytes of the whole buffer. */
  sizeBytes: number
  rounds: number
  repeats: number
  warmUps: number
}

/** Messages of a size from rank 0 to rank 1 and back, over the bare link, one after the other. */
export interface PingTask {
  sizeBytes: number
  rounds: number
}

/** The bare messages of a collective's hops: in each hop every rank sends one to the next or to all, and waits for as many. */
export interface HopsTask {
  /** Of one message. */
  sizeBytes: number
  to: 'next' | 'all'
  /** One after the other. */
  hops: number
  repeats: number
}

/** The bytes of an all-reduce over the bare data channels, to those to whom it sends them. */
export interface RawTask {
  /** Of the whole buffer. */
  sizeBytes: number
  to: 'next' | 'all'
  repeats: number
}

/** What a rank measured of its links, and the milliseconds that it took. */
export interface LinksTaken extends LinkMeasurement {
  ms: number
}

export type ToWorker =
  | { add: { peerRank: number; transport: Transport; lane: number } }
  | { begin: { epoch: number; rank: number; worldSize: number } }
  /** Form a group as users' programs do. */
  | { init: InitProcessGroupOptions }
  | { measure: RingTask }
  | { time: CollectiveTask }
  | { ping: PingTask }
  | { hops: HopsTask }
  | { raw: RawTask }
  | { links: true }

export type FromWorker =
  | { ready: true }
  | { measured: RingTimes }
  /** Milliseconds of one, by round. */
  | { timed: number[] }
  | { taken: LinksTaken }
  | { failed: string }
