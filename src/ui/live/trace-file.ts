import type { SpanKind, StepSample } from '../../trainer/watch/step-sample.ts'
import { inLanes } from '../../util/trace-lanes.ts'
import { type ClockDifference, clockDifferences } from './clocks.ts'

/** What a lane of the file is called; each rank has these. */
const tracks = ['device', 'readback', 'exchange'] as const
const trackOf = (kind: SpanKind): (typeof tracks)[number] => {
  if (kind === 'readback') return 'readback'
  return ['wait', 'reduceScatter', 'allGather', 'exchange'].includes(kind) ? 'exchange' : 'device'
}

/** Readers count in nanoseconds; samples in hundredths of a millisecond. units: us. */
const gridUs = 10
const onGrid = (ms: number) => Math.round((ms * 1000) / gridUs) * gridUs

/**
 * The sampled steps of all ranks as a Chrome trace, which Perfetto and speedscope read: a process for each rank, on this tab's clock.
 *
 * Between sampled steps there is nothing in it.
 */
export function samplesTrace(
  samples: readonly (readonly StepSample[])[],
  own: number,
  isSameClock: (rank: number) => boolean,
): string {
  const clocks = clockDifferences(samples, own, isSameClock)
  const events: object[] = []
  const ranks = samples.at(-1)?.length ?? 0
  const origin = Math.min(
    ...samples.flatMap((set) => set.map(({ beganMs }, rank) => beganMs - offsetOf(clocks[rank]))),
  )
  for (let rank = 0; rank < ranks; rank++) {
    const { errorMs } = clocks[rank]
    const words =
      errorMs === 0
        ? ''
        : Number.isFinite(errorMs)
          ? ` (clock within ${errorMs.toFixed(1)} ms)`
          : ' (clock not aligned)'
    events.push(named('process_name', rank, 0, `rank ${rank}${words}`))
    for (const [track, name] of tracks.entries()) {
      const spans = samples.flatMap((set) => {
        const sample = set[rank]
        if (!sample) return []
        const began = sample.beganMs - offsetOf(clocks[rank]) - origin
        return sample.spans
          .filter(({ kind }) => trackOf(kind) === name)
          .map(({ kind, part, fromMs, toMs }) => {
            const ts = onGrid(began + fromMs)
            return {
              name: part < 0 ? kind : `${kind} ${part}`,
              ts,
              dur: onGrid(began + toMs) - ts,
              args: { step: sample.step },
            }
          })
      })
      inLanes(abutting(spans)).forEach((lane, n) => {
        // Numbers that are unique over all ranks and not 0, which Perfetto gives another meaning.
        const tid = (rank + 1) * 1000 + n * tracks.length + track
        events.push(named('thread_name', rank, tid, n > 0 ? `${name} ${n + 1}` : name))
        for (const span of lane) events.push({ ...span, ph: 'X', pid: rank, tid })
      })
    }
  }
  return JSON.stringify({ traceEvents: events, displayTimeUnit: 'ms' })
}

interface Timed {
  readonly ts: number
  readonly dur: number
}

/** One that ends a hair behind the beginning of the next, as rounding makes them, ends with it: they are one behind the other. */
function abutting<Span extends Timed>(spans: readonly Span[]): Span[] {
  const inOrder = spans.toSorted((a, b) => a.ts - b.ts || b.dur - a.dur)
  return inOrder.map((span, i) => {
    const next = inOrder[i + 1]
    const over = next ? span.ts + span.dur - next.ts : 0
    const isHair = over > 0 && over <= 2 * gridUs && next.ts + next.dur > span.ts + span.dur
    return isHair ? { ...span, dur: span.dur - over } : span
  })
}

const offsetOf = ({ offsetMs }: ClockDifference) => offsetMs

const named = (what: string, pid: number, tid: number, name: string) => ({
  name: what,
  ph: 'M',
  pid,
  tid,
  args: { name },
})
