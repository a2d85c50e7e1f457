import type { SampleSpan, SpanKind, StepSample } from '../../trainer/watch/step-sample.ts'
import { sharesOf } from '../state/rates.ts'
import type { Run } from '../state/run.ts'

/** What one rank makes of its time, by its own clock. NaN for what is not measured yet. */
export interface RankWork {
  /** Samples of its share, over the time in which it does not wait for other ranks. */
  readonly samplesPerSec: number
  /** Of its steps, the part in which it does nothing but wait. */
  readonly waitShare: number
}

/** Number of newest sampled steps that are taken together, since single steps differ. */
const maxSteps = 5

/** Of each rank, over the newest sampled steps. Steps of a batch that is not full do not count. */
export function rankWork(
  run: Pick<
    Run,
    'sampledSteps' | 'globalSamples' | 'config' | 'worldSize' | 'fullestStep' | 'assigned'
  >,
): RankWork[] {
  const { assigned } = run
  const sets = run.sampledSteps
    .slice(-maxSteps)
    .filter((set) => isFull(run, set) && set[0].step > (assigned?.step ?? 0))
  return sharesOf(run).map((rows, rank) => {
    let totalMs = 0
    let waitMs = 0
    for (const set of sets) {
      totalMs += set[rank]?.totalMs ?? Number.NaN
      waitMs += set[rank] ? waitingMs(set[rank]) : Number.NaN
    }
    const busyMs = totalMs - waitMs
    return {
      samplesPerSec: busyMs > 0 ? (1000 * rows * sets.length) / busyMs : Number.NaN,
      waitShare: totalMs > 0 ? waitMs / totalMs : Number.NaN,
    }
  })
}

function isFull(
  { globalSamples: { xs, ys, length }, fullestStep }: Pick<Run, 'globalSamples' | 'fullestStep'>,
  [{ step }]: readonly StepSample[],
): boolean {
  // Steps follow each other without a gap.
  const at = length > 0 ? step - xs[0] : -1
  if (at < 0 || at >= length) return false
  return ys[at] - (at > 0 ? ys[at - 1] : 0) === fullestStep
}

/** Work that a rank does without others. */
const workKinds: readonly SpanKind[] = [
  'data',
  'forward',
  'backward',
  'compute',
  'readback',
  'optimizer',
]

/**
 * The part of the time in which the rank waits for others to begin an exchange that its work does not cover. That another bucket is on its way
 * meanwhile does not count: that one was late for the same reason.
 */
export function waitingMs({ spans, totalMs }: Pick<StepSample, 'spans' | 'totalMs'>): number {
  const work = spans.filter(({ kind }) => workKinds.includes(kind))
  const waits = spans.filter(({ kind }) => kind === 'wait')
  return lengthOf([...work, ...waits], totalMs) - lengthOf(work, totalMs)
}

/** Of the time that spans cover together, up to `endMs`. */
function lengthOf(spans: readonly SampleSpan[], endMs: number): number {
  let covered = 0
  let upTo = 0
  for (const { fromMs, toMs } of [...spans].sort((a, b) => a.fromMs - b.fromMs)) {
    const from = Math.max(upTo, fromMs)
    const to = Math.min(endMs, toMs)
    if (to > from) covered += to - from
    upTo = Math.max(upTo, to)
  }
  return covered
}

/** Less than this is the usual difference between equal machines. */
const clearWaitShare = 0.1

/** The rank that the others wait for, where it is clear which: they wait for a good part of their steps, and it hardly does. */
export function slowestRank(work: readonly RankWork[]): number | null {
  const waits = work.map(({ waitShare }) => waitShare)
  if (waits.length < 2 || !waits.every(Number.isFinite)) return null
  const min = waits.indexOf(Math.min(...waits))
  const others = waits.filter((_, rank) => rank !== min)
  return Math.min(...others) - waits[min] > clearWaitShare ? min : null
}
