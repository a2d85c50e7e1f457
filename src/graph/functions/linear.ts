import type { ScalarSlot } from '../../kernels/op.ts'
import { topKCorrect as topKCorrectOp } from '../../kernels/top-k/top-k.ts'
import { isRecord } from '../../util/kind-of.ts'
import { checkArgument, checkOptions } from '../../util/options.ts'
import { elementwise, emit, given, mustBeTensor, product, type Tensor } from '../trace/tensor.ts'
import { mustBeFloat } from '../trace/tensor-arguments.ts'
import { activeTrace } from '../trace/trace.ts'

/** Functions on tensors, named as in torch.nn.functional. */

export { crossEntropy } from './losses.ts'

export const relu = (x: Tensor): Tensor => elementwise('relu', x)

/** Returns x W^T + b. shape: x[.., K], weight[C, K], bias[C] -> [.., C] */
export function linear(x: Tensor, weight: Tensor, bias?: Tensor): Tensor {
  mustBeTensor('linear', x, weight, ...given(bias))
  mustBeFloat('linear', x, weight)
  if (x.shape.length === 1) {
    return linear(x.reshape([1, x.count]), weight, bias).reshape([weight.shape[0]])
  }
  return product(x, weight, 'nt', bias)
}

/** Which rows of a padded batch count: a step scalar, or all of them. */
export interface SampleCount {
  count?: ScalarSlot
}

/** errors: a TypeError, naming `where`, for a count that is given and that no run can set. */
export const mustCount = (where: string, count: ScalarSlot | undefined): void =>
  checkArgument(
    where,
    'count',
    count,
    count === undefined || (isRecord(count) && Number.isInteger(count.slot)),
    'sampleCount() or stepScalar(name), whose value run() takes',
  )

/** Returns the number of rows whose target is among the k largest logits. shape: logits[R, C], target[R] -> [] */
export function topKCorrect(
  logits: Tensor,
  target: Tensor,
  k = 1,
  options: SampleCount = {},
): Tensor {
  const { count } = checkOptions('topKCorrect', options, { count: true })
  mustCount('topKCorrect', count)
  return emit(topKCorrectOp, [logits, target], { k, count: count ?? null })
}

/** Returns a named number that each run of the compiled function can set; default `initial`. */
export function stepScalar(name: string, initial = 0): ScalarSlot {
  checkArgument('stepScalar', 'initial', initial, typeof initial === 'number', 'a number')
  return activeTrace('stepScalar').scalars.named(name, initial)
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
