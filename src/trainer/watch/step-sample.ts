import type { StepTimes } from '../../graph/plan/step-program.ts'
import type { CollectiveSpan } from '../../peer/group/group.ts'

/**
 * One step of one rank, small enough to be sent to all others every second: what it did when, and its counters.
 *
 * Map: StepSample - spansOf: a step's marks and collectives as spans - packSample, unpackSample: as it travels.
 */

/** What a rank does in a step; the index is its number as it travels. `compute`: forward and backward, where the device does not part them. */
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

export interface SampleSpan {
  readonly kind: SpanKind
  /** -1 where it is of no single bucket. */
  readonly bucket: number
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

/** What was noted of one step. units: `performance.now()` milliseconds. */
export interface WatchedStep {
  readonly step: number
  readonly marks: readonly { readonly name: string; readonly atMs: number }[]
  readonly collectives: readonly CollectiveSpan[]
}

/** Steps of many buckets keep their longest spans, so that a sample stays small. */
const mostSpans = 96

/** A step's spans, from `fromMs` on, in the order of their beginnings. */
export function spansOf(
  { marks, collectives }: WatchedStep,
  times: StepParts,
  fromMs: number,
): SampleSpan[] {
  const at = new Map(marks.map(({ name, atMs }) => [name, atMs]))
  const spans: SampleSpan[] = []
  const add = (kind: SpanKind, bucket: number, begin: number, end: number) => {
    if (end > begin) spans.push({ kind, bucket, fromMs: begin - fromMs, toMs: end - fromMs })
  }
  const computeMs = fromMs + times.data
  add('data', -1, fromMs, computeMs)
  const backwardMs = computeMs + times.forward
  add('forward', -1, computeMs, backwardMs)
  const isParted = times.forward > 0 || times.backward === 0
  const backward: SpanKind = isParted ? 'backward' : 'compute'
  if (collectives.length === 0) {
    const updateMs = backwardMs + times.backward
    add(backward, -1, backwardMs, updateMs)
    add('optimizer', -1, updateMs, updateMs + times.optimizer)
    return spans
  }
  const ofBucket = (bucket: number, what: string) => at.get(`bucket ${bucket} ${what}`)
  let endedMs = backwardMs
  for (let bucket = 0; ; bucket++) {
    const hostMs = ofBucket(bucket, 'on the host')
    if (hostMs === undefined) break
    // The queue tells of its end in a task of its own, at times after the bucket is mapped.
    const doneMs = Math.max(endedMs, Math.min(hostMs, at.get(`part ${bucket} done`) ?? hostMs))
    add(backward, bucket, endedMs, doneMs)
    add('readback', bucket, doneMs, hostMs)
    endedMs = doneMs
  }
  for (const { operation, bucket, launchedMs, endedMs: overMs } of collectives) {
    const kind = operation === 'reduceScatter' || operation === 'allGather' ? operation : 'exchange'
    const metMs = ofBucket(bucket, `met for ${operation}`)
    const meetMs = Math.min(overMs, Math.max(launchedMs, metMs ?? launchedMs))
    add('wait', bucket, launchedMs, meetMs)
    add(kind, bucket, meetMs, overMs)
    if (operation !== 'allGather') continue
    const reducedMs = ofBucket(bucket, 'reduced')
    if (reducedMs !== undefined) add('optimizer', bucket, reducedMs, launchedMs)
  }
  const kept =
    spans.length > mostSpans
      ? spans.sort((a, b) => b.toMs - b.fromMs - (a.toMs - a.fromMs)).slice(0, mostSpans)
      : spans
  return kept.sort((a, b) => a.fromMs - b.fromMs)
}

// --- as it travels: JSON of few digits ---

/** units of times on the way: 1/100 ms. */
const ticks = (ms: number) => Math.round(ms * 100)

/** A sample as JSON holds it in few characters: about 25 a span, 10 a link and 150 for the rest. */
export type PackedSample = readonly [
  step: number,
  beganMs: number,
  totalTicks: number,
  /** Kind, bucket, beginning and length, one after the other. */
  spans: readonly number[],
  readMs: number,
  link: readonly number[] | null,
  sentTo: readonly (number | null)[],
  memory: readonly (number | null)[],
]

const hundredths = (ms: number) => Math.round(ms * 100) / 100

export const packSample = (sample: StepSample): PackedSample => {
  const { link, sentTo, memory } = sample
  return [
    sample.step,
    hundredths(sample.beganMs),
    ticks(sample.totalMs),
    sample.spans.flatMap(({ kind, bucket, fromMs, toMs }) => [
      spanKinds.indexOf(kind),
      bucket,
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
      bucket: numbers[i + 1],
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
