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

export type ToWorker =
  | { add: { peerRank: number; transport: Transport } }
  | { begin: { epoch: number; rank: number; worldSize: number } }
  | { measure: RingTask }

export type FromWorker = { ready: true } | { measured: RingTimes } | { failed: string }
