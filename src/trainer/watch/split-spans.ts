import { meetingOfMark, workOfMark } from '../../graph/plan/work.ts'
import type { SampleSpan, SpanKind, StepParts, WatchedStep } from './step-sample.ts'

const kindOfMeeting = { gather: 'allGather', scatter: 'reduceScatter', sum: 'exchange' } as const

/**
 * The spans of a step that ranks split, from `fromMs` on: what the device did piece by piece, and its meetings; undefined where nothing was
 * noted of them.
 *
 * A piece begins when what it needs is there and the device has done the one before.
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
  add('data', -1, fromMs, fromMs + times.data)
  const overMs = fromMs + times.total
  let beforeMs = fromMs + times.data
  for (const { kind, part, readyMs, doneMs = overMs } of pieces) {
    const last = spans.at(-1)
    // A send cuts a task in two.
    if (last?.kind === kind && last.part === part && part >= 0 && readyMs <= beforeMs) {
      spans.pop()
      add(kind, part, fromMs + last.fromMs, doneMs)
    } else add(kind, part, Math.max(beforeMs, readyMs), doneMs)
    beforeMs = Math.max(beforeMs, doneMs)
  }
  for (const { kind, number, launchedMs, metMs = launchedMs, endedMs } of meetingsOf(marks)) {
    if (endedMs === undefined) continue
    add('wait', number, launchedMs, metMs)
    add(kind, number, metMs, endedMs)
  }
  return spans
}

interface Piece {
  readonly kind: SpanKind
  /** Its micro-batch; -1 outside of pipelines. */
  readonly part: number
  readonly readyMs: number
  doneMs?: number
}

function piecesOf(marks: WatchedStep['marks']): Piece[] {
  const pieces: Piece[] = []
  for (const { name, atMs } of marks) {
    const mark = workOfMark(name)
    if (!mark) continue
    if (mark.isDone) pieces[mark.index].doneMs = atMs
    else pieces[mark.index] = { kind: mark.phase, part: mark.microBatch ?? -1, readyMs: atMs }
  }
  return pieces
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
