import type { Phase } from './phases.ts'
import { workOfMark } from './work.ts'

/** Something that a device did in a watched run, between two stops. units: ms of `performance.now()`. */
export interface Piece {
  /** Undefined where the step is on one device. */
  readonly device: string | undefined
  readonly phase: Phase
  /** In a pipeline, of the task. */
  readonly stage: number | undefined
  readonly microBatch: number | undefined
  readonly beginMs: number
  /** Undefined for one that was not done when the run ended. */
  endMs: number | undefined
}

/**
 * The pieces of a watched run, from its marks.
 *
 * A piece begins when what it needs is there and its device has done the one before. A send cuts a task in two: here it is whole.
 */
export function piecesOf(
  marks: readonly { readonly name: string; readonly atMs: number }[],
): Piece[] {
  const noted = new Map<
    string,
    ReturnType<typeof workOfMark> & { readyMs: number; endMs?: number }
  >()
  for (const { name, atMs } of marks) {
    const mark = workOfMark(name)
    if (!mark) continue
    const key = `${mark.device} ${mark.index}`
    const known = noted.get(key)
    if (known) known.endMs = atMs
    else noted.set(key, { ...mark, readyMs: atMs })
  }
  const pieces: Piece[] = []
  const lastOn = new Map<string | undefined, Piece>()
  for (const { device, phase, stage, microBatch, readyMs, endMs } of noted.values()) {
    const last = lastOn.get(device)
    const beforeMs = last ? (last.endMs ?? Number.POSITIVE_INFINITY) : Number.NEGATIVE_INFINITY
    const isSame = last?.phase === phase && last.stage === stage && last.microBatch === microBatch
    if (last && isSame && stage !== undefined && readyMs <= beforeMs) {
      last.endMs = endMs
      continue
    }
    const beginMs = Math.max(readyMs, beforeMs)
    const piece: Piece = { device, phase, stage, microBatch, beginMs, endMs }
    pieces.push(piece)
    lastOn.set(device, piece)
  }
  return pieces
}
