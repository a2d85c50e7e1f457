import type { StepTimes } from '../../graph/plan/step-program.ts'
import type { CollectiveSpan } from '../../peer/group/group.ts'

/**
 * One step of one rank, small enough to be sent to all others every second: what it did when, and its counters.
 *
 * Map: StepSample - packSample, unpackSample: as it travels.
 */

/** Kinds of work of a rank in a step; the index is the kind's number as it travels. `compute`: forward and backward, where the device does not part them. */
export const spanKinds = [
  'data',
  'forward',
  'backward',
  'compute',
  'readback',
  'wait',
  'reduceScatter',
  'allGather',
  'exchange',
  'optimizer',
] as const
export type SpanKind = (typeof spanKinds)[number]

/** Steps of many parts keep their longest spans, so that a sample stays small. */
export const maxSpans = 96

export interface SampleSpan {
  readonly kind: SpanKind
  /** Its bucket; in a pipeline its micro-batch; of layers that ranks divide, its exchange. -1 where it is of no single one. */
  readonly part: number
  /** From the step's beginning. */
  readonly fromMs: number
  readonly toMs: number
}

/** From the run's beginning, to the next rank in the ring. */
export interface LinkCounters {
  readonly bytesSent: number
  /** The most that was under way at once, since the sample before. */
  readonly peakInFlightBytes: number
  /** So many chunks: frames of data. */
  readonly peakInFlightFrames: number
  /** So many may be. */
  readonly windowBytes: number
}

/** Bytes; null where the browser or the device does not tell. */
export interface MemoryUse {
  /** Of the step's program: intermediates, inputs, outputs and readback. */
  readonly plannedBytes: number
  /** Of all buffers on the device. */
  readonly deviceBytes: number | null
}

/** Milliseconds of one step on this rank; the parts add up to the whole. */
export interface StepParts extends StepTimes {
  /** Making the batch and handing it over, as far as the device did not work on the step before meanwhile. */
  readonly data: number
  /** From the beginning of the step, or the end of the one before where that came later, to its loss. */
  readonly total: number
}

export interface StepSample {
  readonly step: number
  /** When it began, by the rank's own clock. units: ms of Unix time. */
  readonly beganMs: number
  readonly totalMs: number
  readonly spans: readonly SampleSpan[]
  /** When the counters were read, by the rank's own clock. units: ms of Unix time. */
  readonly readMs: number
  readonly link: LinkCounters | null
  /** Payload sent to each rank since the run began; null where there is no link. units: bytes. */
  readonly sentTo: readonly (number | null)[]
  readonly memory: MemoryUse
}

/** Record of one step. units: `performance.now()` milliseconds. */
export interface WatchedStep {
  readonly step: number
  readonly marks: readonly { readonly name: string; readonly atMs: number }[]
  readonly collectives: readonly CollectiveSpan[]
}

// --- as it travels: JSON of few digits ---

/** units of times on the way: 1/100 ms. */
const ticks = (ms: number) => Math.round(ms * 100)

/** A sample as JSON holds it in few characters: about 25 a span, 10 a link and 150 for the rest. */
export type PackedSample = readonly [
  step: number,
  beganMs: number,
  totalTicks: number,
  /** Kind, part, beginning and length, one after the other. */
  spans: readonly number[],
  readMs: number,
  link: readonly number[] | null,
  sentTo: readonly (number | null)[],
  memory: readonly (number | null)[],
]

const isNumberOrNull = (value: unknown) => value === null || Number.isFinite(value)
const numbersPerSpan = 4
const areSpans = (value: unknown) =>
  Array.isArray(value) &&
  value.length <= numbersPerSpan * maxSpans &&
  value.length % numbersPerSpan === 0 &&
  value.every(Number.isFinite)
const areNumbers = (value: unknown, count: number) =>
  Array.isArray(value) && value.length === count && value.every(Number.isFinite)
const areNumbersOrNull = (value: unknown, count: number) =>
  Array.isArray(value) && value.length === count && value.every(isNumberOrNull)

/** Tells whether a rank of a group of that size may say that of a step. */
export function isPackedSample(received: unknown, size: number): received is PackedSample {
  if (!Array.isArray(received) || received.length !== 8) return false
  const [step, beganMs, totalTicks, spans, readMs, link, sentTo, memory] = received
  return (
    [step, beganMs, totalTicks, readMs].every(Number.isFinite) &&
    areSpans(spans) &&
    (link === null || areNumbers(link, 4)) &&
    areNumbersOrNull(sentTo, size) &&
    areNumbersOrNull(memory, 2)
  )
}

const hundredths = (ms: number) => Math.round(ms * 100) / 100

export const packSample = (sample: StepSample): PackedSample => {
  const { link, sentTo, memory } = sample
  return [
    sample.step,
    hundredths(sample.beganMs),
    ticks(sample.totalMs),
    sample.spans.flatMap(({ kind, part, fromMs, toMs }) => [
      spanKinds.indexOf(kind),
      part,
      ticks(fromMs),
      ticks(toMs - fromMs),
    ]),
    hundredths(sample.readMs),
    link && [link.bytesSent, link.peakInFlightBytes, link.peakInFlightFrames, link.windowBytes],
    sentTo,
    [memory.plannedBytes, memory.deviceBytes],
  ]
}

export function unpackSample(packed: PackedSample): StepSample {
  const [step, beganMs, totalTicks, numbers, readMs, link, sentTo, memory] = packed
  const spans: SampleSpan[] = []
  for (let i = 0; i + 3 < numbers.length; i += 4) {
    const fromMs = numbers[i + 2] / 100
    spans.push({
      kind: spanKinds[numbers[i]] ?? 'exchange',
      part: numbers[i + 1],
      fromMs,
      toMs: fromMs + numbers[i + 3] / 100,
    })
  }
  return {
    step,
    beganMs,
    totalMs: totalTicks / 100,
    spans,
    readMs,
    link: link && {
      bytesSent: link[0],
      peakInFlightBytes: link[1],
      peakInFlightFrames: link[2],
      windowBytes: link[3],
    },
    sentTo,
    memory: { plannedBytes: memory[0] ?? 0, deviceBytes: memory[1] },
  }
}
