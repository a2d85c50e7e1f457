import { type AddSpan, addSplitSpans } from './split-spans.ts'
import {
  maxSpans,
  type SampleSpan,
  type SpanKind,
  type StepParts,
  type WatchedStep,
} from './step-sample.ts'

/** A step's spans, from `fromMs` on, in the order of their beginnings. */
export function spansOf(
  { marks, collectives }: WatchedStep,
  times: StepParts,
  fromMs: number,
): SampleSpan[] {
  const at = new Map(marks.map(({ name, atMs }) => [name, atMs]))
  const spans: SampleSpan[] = []
  const add: AddSpan = (kind, part, begin, end) => {
    if (end > begin) spans.push({ kind, part, fromMs: begin - fromMs, toMs: end - fromMs })
  }
  const computeMs = fromMs + times.data
  add('data', -1, fromMs, computeMs)
  if (addSplitSpans(marks, computeMs, fromMs + times.total, add)) return longest(spans)
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
    // The queue reports its end in a separate task, at times after the bucket is mapped.
    const doneMs = Math.max(endedMs, Math.min(hostMs, at.get(`part ${bucket} done`) ?? hostMs))
    add(backward, bucket, endedMs, doneMs)
    add('readback', bucket, doneMs, hostMs)
    endedMs = doneMs
  }
  for (const { operation, bucket, launchedMs, endedMs: overMs } of collectives) {
    const kind = operation === 'reduceScatter' || operation === 'allGather' ? operation : 'exchange'
    const allBegunMs = ofBucket(bucket, `met for ${operation}`)
    const syncMs = Math.min(overMs, Math.max(launchedMs, allBegunMs ?? launchedMs))
    add('wait', bucket, launchedMs, syncMs)
    add(kind, bucket, syncMs, overMs)
    if (operation !== 'allGather') continue
    const reducedMs = ofBucket(bucket, 'reduced')
    if (reducedMs !== undefined) add('optimizer', bucket, reducedMs, launchedMs)
  }
  return longest(spans)
}

function longest(spans: readonly SampleSpan[]): SampleSpan[] {
  const byLength = spans.toSorted((a, b) => b.toMs - b.fromMs - (a.toMs - a.fromMs))
  const kept = spans.length > maxSpans ? byLength.slice(0, maxSpans) : [...spans]
  return kept.sort((a, b) => a.fromMs - b.fromMs)
}
