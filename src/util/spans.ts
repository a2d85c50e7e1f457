import { switchValue } from './switches.ts'

/**
 * Spans of time for people to look at, kept while `trace` is on.
 *
 * Each is a performance.measure that the performance panel shows on a track of its own, and an event of the Chrome trace that
 * `exportTrace` returns. Times are `performance.now()` of whoever notes them.
 */

/** As the trace event format has it; times in microseconds. source: the Trace Event Format document of the Chromium project. */
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

/** A long run keeps its newest spans. */
const mostSpans = 200_000

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
  events.push({
    name,
    ph: 'X',
    pid: process.id,
    tid: tracks.indexOf(track),
    ts: (performance.timeOrigin + startMs) * 1000,
    dur: (endMs - startMs) * 1000,
    args,
  })
  if (events.length > mostSpans) events = events.slice(-mostSpans / 2)
}

/** The events noted so far, with the names of process and tracks. */
export function traceEvents(): TraceEvent[] {
  const { id: pid, name } = process
  const meta = (what: string, tid: number, text: string): TraceEvent => ({
    name: what,
    ph: 'M',
    pid,
    tid,
    args: { name: text },
  })
  return [
    meta('process_name', 0, name),
    ...tracks.map((track, tid) => meta('thread_name', tid, track)),
    ...events,
  ]
}

/** A Chrome trace of the spans so far, as JSON text: opens in Perfetto and in chrome://tracing. Of several ranks, give all their events. */
export const exportTrace = (all: readonly TraceEvent[] = traceEvents()): string =>
  JSON.stringify({ traceEvents: all, displayTimeUnit: 'ms' })
