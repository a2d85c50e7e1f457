import type { SampleSpan, SpanKind, StepSample } from '../../trainer/watch/step-sample.ts'
import type { Run } from '../state/run.ts'
import { type ClockDifference, clockDifferences } from './clocks.ts'

/** What the device does, in one row; the rest is under way beside it. */
const deviceKinds: readonly SpanKind[] = ['data', 'forward', 'backward', 'compute', 'optimizer']

/** A span on the common clock, from the earliest beginning of the step on any rank. */
export interface LaneSpan extends SampleSpan {
  /** 0: the device's row; the exchange's are below. */
  readonly row: number
}

/** One rank's part of one step. */
export interface Lane {
  readonly rank: number
  readonly spans: readonly LaneSpan[]
  readonly rows: number
  readonly clock: ClockDifference
  /** True if it may be off by more than a person would see. */
  readonly isRough: boolean
}

export interface StepLanes {
  readonly step: number
  readonly lengthMs: number
  readonly lanes: readonly Lane[]
}

/** Rows of collectives under way at once; the rest share the last one. */
const maxRingRows = 3

/** Every rank's part of the step that was sampled last, on this tab's clock; null before the first sample. */
export function lanesOf(run: Pick<Run, 'sampledSteps' | 'members' | 'rank'>): StepLanes | null {
  const newest = run.sampledSteps.at(-1)
  if (!newest) return null
  const hosts = run.members.map(({ hostTag }) => hostTag)
  const isSameClock = (rank: number) => hosts[rank] !== '' && hosts[rank] === hosts[run.rank]
  return alignedLanes(newest, clockDifferences(run.sampledSteps, run.rank, isSameClock))
}

/** The samples of one step on a common clock. */
export function alignedLanes(
  set: readonly StepSample[],
  clocks: readonly ClockDifference[],
): StepLanes {
  const begins = set.map(({ beganMs }, rank) => beganMs - clocks[rank].offsetMs)
  const known = begins.filter((_, rank) => Number.isFinite(clocks[rank].errorMs))
  const origin = Math.min(...known)
  const shiftOf = (rank: number) =>
    // Without any bound a lane begins where the step does.
    Number.isFinite(clocks[rank].errorMs) ? begins[rank] - origin : 0
  const lengthMs = Math.max(
    ...set.flatMap(({ totalMs, spans }, rank) =>
      [totalMs, ...spans.map(({ toMs }) => toMs)].map((ms) => ms + shiftOf(rank)),
    ),
  )
  const lanes = set.map(({ spans }, rank): Lane => {
    const shift = shiftOf(rank)
    const shifted = spans.map((span) => ({
      ...span,
      fromMs: span.fromMs + shift,
      toMs: span.toMs + shift,
    }))
    const isOfDevice = ({ kind }: SampleSpan) => deviceKinds.includes(kind)
    const beside = apart(shifted.filter((span) => !isOfDevice(span)))
    const own = shifted.filter(isOfDevice).map((span): LaneSpan => ({ ...span, row: 0 }))
    const all = [...own, ...beside]
    const clock = clocks[rank]
    return {
      rank,
      spans: all,
      rows: Math.max(1, ...all.map(({ row }) => row + 1)),
      clock,
      isRough: clock.errorMs > Math.max(1, 0.05 * lengthMs),
    }
  })
  return { step: set[0].step, lengthMs, lanes }
}

/** Spans, those that overlap in separate rows. */
function apart(spans: readonly SampleSpan[]): LaneSpan[] {
  const ends: number[] = []
  return [...spans]
    .sort((a, b) => a.fromMs - b.fromMs)
    .map((span) => {
      // They travelled in hundredths: what touches must not overlap by a rounding.
      const free = ends.findIndex((endMs) => endMs <= span.fromMs + 0.02)
      const row = free < 0 ? ends.length : free
      ends[row] = span.toMs
      return { ...span, row: 1 + Math.min(row, maxRingRows - 1) }
    })
}

/** Milliseconds of each kind on one rank. */
export function sumsOf(spans: readonly SampleSpan[]): Map<SpanKind, number> {
  const sums = new Map<SpanKind, number>()
  for (const { kind, fromMs, toMs } of spans) sums.set(kind, (sums.get(kind) ?? 0) + toMs - fromMs)
  return sums
}
