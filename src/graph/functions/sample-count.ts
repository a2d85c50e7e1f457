import type { ScalarSlot } from '../../kernels/op.ts'
import { isRecord } from '../../util/kind-of.ts'
import { checkArgument, checkText, isNoNan } from '../../util/options.ts'
import { activeTrace } from '../trace/trace.ts'

/** Which rows of a padded batch count: a step scalar, or all of them. */
export interface SampleCount {
  count?: ScalarSlot
}

/** Returns a named number that each run of the compiled function can set; default `initial`. A step that trains refuses one that nothing reads. */
export function stepScalar(name: string, initial = 0): ScalarSlot {
  checkText('stepScalar', 'name', name)
  checkArgument('stepScalar', 'initial', initial, isNoNan(initial), 'a number')
  return activeTrace('stepScalar').scalars.named(name, initial, false)
}

/** Returns the step scalar `count`: the number of leading samples that count in a padded batch; all if a run does not set it. */
export function sampleCount(): ScalarSlot {
  const trace = activeTrace('sampleCount')
  trace.isCountRead = true
  return trace.countOfPart ?? stepScalar('count', 2 ** 24)
}

/**
 * Returns what `work` traces for rows [first, first + rows) of the batch: there `sampleCount` is how many of these count.
 *
 * `share` is the part that they have of all that count, of `batch` rows at most.
 */
export function ofRows<T>(
  first: number,
  rows: number,
  work: (share: ScalarSlot) => T,
  batch = Number.POSITIVE_INFINITY,
): T {
  const trace = activeTrace('sampleCount')
  const { scalars } = trace
  const all = sampleCount()
  scalars.countsAmong(all, first + rows)
  const counted = () => Math.min(rows, Math.max(0, scalars.value(all) - first))
  const outer = trace.countOfPart
  trace.countOfPart = scalars.add(counted)
  const share = scalars.add(() => counted() / Math.max(1, Math.min(batch, scalars.value(all))))
  try {
    return work(share)
  } finally {
    trace.countOfPart = outer
  }
}

/** errors: a TypeError, naming `where`, for a count that is given and that no run can set; `graph.misuse` for another trace's. */
export function mustCount(where: string, count: ScalarSlot | undefined): void {
  if (count === undefined) return
  checkArgument(
    where,
    'count',
    count,
    isRecord(count) && Number.isInteger(count.slot),
    'sampleCount() or stepScalar(name), whose value run() takes',
  )
  activeTrace(where).scalars.requireOwn(count)
}
