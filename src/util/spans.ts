import { isRecord } from './kind-of.ts'
import { checkList } from './options.ts'
import { switchValue } from './switches.ts'
import { inLanes } from './trace-lanes.ts'

/**
 * Spans of time for people to look at, kept while `trace` is on.
 *
 * Each is a performance.measure that the performance panel shows on a separate track, and an event of the Chrome trace that
 * `exportTrace` returns. Times are `performance.now()` of the context that notes them.
 */

/**
 * An event in the trace event format; `ts` and `dur` in microseconds, `ts` counted from 2026. source: the Trace Event Format document of
 * the Chromium project.
 */
export interface TraceEvent {
  readonly name: string
  readonly ph: 'X' | 'M'
  readonly pid: number
  readonly tid: number
  readonly ts?: number
  readonly dur?: number
  readonly args: Readonly<Record<string, unknown>>
}

type Track = 'steps' | 'kernels' | 'collectives'
const tracks: readonly Track[] = ['steps', 'kernels', 'collectives']

/**
 * Where `ts` counts from, in milliseconds of Unix time: the same for all ranks, and near, since a double holds microseconds of 1970 to a
 * quarter only. Readers count in whole nanoseconds, so times are of a grid that both have exactly: spans that touch still do then, and what
 * lies within another stays there.
 */
const originMs = Date.UTC(2026, 0)
const gridUs = 1 / 8

/** `performance.now()` as microseconds from the origin, on the grid. */
const traceTime = (ms: number): number =>
  Math.round(((performance.timeOrigin - originMs) * 1000 + ms * 1000) / gridUs) * gridUs

/** A long run keeps its newest spans. */
const maxSpans = 200_000

let events: TraceEvent[] = []
let process = { id: 0, name: 'tabring' }

/** Says whose spans these are: the rank of this worker. */
export function nameSpans(id: number, name: string): void {
  process = { id, name }
}

export const isTracing = (): boolean => switchValue('trace')

/** Notes a span; nothing where `trace` is off. */
export function span(
  track: Track,
  name: string,
  startMs: number,
  endMs: number,
  args: Readonly<Record<string, unknown>> = {},
): void {
  if (!isTracing() || !(endMs >= startMs)) return
  const detail = {
    devtools: {
      dataType: 'track-entry',
      trackGroup: 'Tabring',
      track,
      properties: Object.entries(args).map(([key, value]) => [key, String(value)]),
    },
  }
  performance.measure(name, { start: Math.max(0, startMs), end: Math.max(0, endMs), detail })
  // The panel has it; the page's own list of entries would grow without end.
  performance.clearMeasures(name)
  const ts = traceTime(startMs)
  const dur = traceTime(endMs) - ts
  events.push({ name, ph: 'X', pid: process.id, tid: tracks.indexOf(track), ts, dur, args })
  if (events.length > maxSpans) events = events.slice(-maxSpans / 2)
}

/** The events noted so far, with the names of process and tracks. */
export function traceEvents(): TraceEvent[] {
  const { id: pid, name } = process
  return [
    named('process_name', pid, 0, name),
    ...tracks.map((track, tid) => named('thread_name', pid, tid, track)),
    ...events,
  ]
}

const named = (what: string, pid: number, tid: number, name: string): TraceEvent => ({
  name: what,
  ph: 'M',
  pid,
  tid,
  args: { name },
})

/** Threads have numbers that are unique over all ranks and not 0, which Perfetto gives another meaning. */
const threadOf = (pid: number, track: number, lane = 0): number =>
  (pid + 1) * 1000 + lane * tracks.length + track

/**
 * Returns the spans so far as a Chrome trace (JSON text), which Perfetto and speedscope open. For several ranks, pass the events of all.
 *
 * Overlapping spans of one track, such as concurrent collectives, are split into separate tracks ("collectives 2"). Times count from the
 * first span, because trace viewers keep all digits of smaller numbers.
 */
export function exportTrace(events: readonly TraceEvent[] = traceEvents()): string {
  checkList('exportTrace', 'events', events, isRecord, 'events')
  const exported: TraceEvent[] = []
  const spansOf = new Map<string, TraceEvent[]>()
  let first = Number.POSITIVE_INFINITY
  for (const event of events) {
    const { ph, pid, tid, ts = 0 } = event
    if (ph === 'M') {
      exported.push({ ...event, tid: threadOf(pid, tid) })
      continue
    }
    first = Math.min(first, ts)
    const key = `${pid} ${tid}`
    spansOf.set(key, spansOf.get(key) ?? [])
    spansOf.get(key)!.push(event)
  }
  for (const spans of spansOf.values()) {
    const [{ pid, tid: track }] = spans
    inLanes(spans).forEach((lane, n) => {
      const tid = threadOf(pid, track, n)
      if (n > 0) exported.push(named('thread_name', pid, tid, `${tracks[track]} ${n + 1}`))
      for (const event of lane) exported.push({ ...event, tid, ts: (event.ts ?? 0) - first })
    })
  }
  return JSON.stringify({ traceEvents: exported, displayTimeUnit: 'ms' })
}
