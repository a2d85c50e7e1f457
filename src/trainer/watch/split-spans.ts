import { piecesOf } from '../../graph/plan/pieces.ts'
import { syncPointOfMark } from '../../graph/plan/work.ts'
import type { SpanKind, WatchedStep } from './step-sample.ts'

const kindOfSyncPoint = { gather: 'allGather', scatter: 'reduceScatter', sum: 'exchange' } as const

/** Adds a span that takes any time. */
export type AddSpan = (kind: SpanKind, part: number, beginMs: number, endMs: number) => void

/**
 * Adds the spans of a step that ranks split: what the device did piece by piece, from `computeMs` to `overMs`, and its meetings. Returns
 * whether anything was noted of them.
 */
export function addSplitSpans(
  marks: WatchedStep['marks'],
  computeMs: number,
  overMs: number,
  add: AddSpan,
): boolean {
  const pieces = piecesOf(marks)
  for (const { phase, microBatch = -1, beginMs, endMs = overMs } of pieces)
    add(phase, microBatch, Math.max(computeMs, beginMs), endMs)
  for (const { kind, number, launchedMs, allBegunMs = launchedMs, endedMs } of syncPointsOf(
    marks,
  )) {
    if (endedMs === undefined) continue
    add('wait', number, launchedMs, allBegunMs)
    add(kind, number, allBegunMs, endedMs)
  }
  return pieces.length > 0
}

interface SyncPoint {
  readonly kind: SpanKind
  readonly number: number
  readonly launchedMs: number
  allBegunMs?: number
  endedMs?: number
}

function syncPointsOf(marks: WatchedStep['marks']): SyncPoint[] {
  const syncPoints = new Map<number, SyncPoint>()
  for (const { name, atMs } of marks) {
    const mark = syncPointOfMark(name)
    if (!mark) continue
    const { syncPoint, number, what } = mark
    const known = syncPoints.get(number)
    if (!known)
      syncPoints.set(number, { kind: kindOfSyncPoint[syncPoint], number, launchedMs: atMs })
    else if (what === 'met') known.allBegunMs = atMs
    else known.endedMs = atMs
  }
  return [...syncPoints.values()]
}
