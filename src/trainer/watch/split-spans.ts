import { piecesOf } from '../../graph/plan/pieces.ts'
import { meetingOfMark } from '../../graph/plan/work.ts'
import type { SampleSpan, SpanKind, StepParts, WatchedStep } from './step-sample.ts'

const kindOfMeeting = { gather: 'allGather', scatter: 'reduceScatter', sum: 'exchange' } as const

/**
 * The spans of a step that ranks split, from `fromMs` on: what the device did piece by piece, and its meetings; undefined where nothing was
 * noted of them.
 */
export function splitSpans(
  marks: WatchedStep['marks'],
  times: StepParts,
  fromMs: number,
): SampleSpan[] | undefined {
  const pieces = piecesOf(marks)
  if (pieces.length === 0) return undefined
  const spans: SampleSpan[] = []
  const add = (kind: SpanKind, part: number, begin: number, end: number) => {
    if (end > begin) spans.push({ kind, part, fromMs: begin - fromMs, toMs: end - fromMs })
  }
  const dataMs = fromMs + times.data
  add('data', -1, fromMs, dataMs)
  for (const { phase, microBatch = -1, beginMs, endMs = fromMs + times.total } of pieces)
    add(phase, microBatch, Math.max(dataMs, beginMs), endMs)
  for (const { kind, number, launchedMs, metMs = launchedMs, endedMs } of meetingsOf(marks)) {
    if (endedMs === undefined) continue
    add('wait', number, launchedMs, metMs)
    add(kind, number, metMs, endedMs)
  }
  return spans
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
