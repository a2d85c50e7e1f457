import { piecesOf } from '../../graph/plan/pieces.ts'
import { meetingOfMark } from '../../graph/plan/work.ts'
import type { SpanKind, WatchedStep } from './step-sample.ts'

const kindOfMeeting = { gather: 'allGather', scatter: 'reduceScatter', sum: 'exchange' } as const

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
  for (const { kind, number, launchedMs, metMs = launchedMs, endedMs } of meetingsOf(marks)) {
    if (endedMs === undefined) continue
    add('wait', number, launchedMs, metMs)
    add(kind, number, metMs, endedMs)
  }
  return pieces.length > 0
}

interface Meeting {
  readonly kind: SpanKind
  readonly number: number
  readonly launchedMs: number
  metMs?: number
  endedMs?: number
}

function meetingsOf(marks: WatchedStep['marks']): Meeting[] {
  const meetings = new Map<number, Meeting>()
  for (const { name, atMs } of marks) {
    const mark = meetingOfMark(name)
    if (!mark) continue
    const { meeting, number, what } = mark
    const known = meetings.get(number)
    if (!known) meetings.set(number, { kind: kindOfMeeting[meeting], number, launchedMs: atMs })
    else if (what === 'met') known.metMs = atMs
    else known.endedMs = atMs
  }
  return [...meetings.values()]
}
