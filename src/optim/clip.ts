import { Pool, poolAlignment } from '../graph/memory/pool.ts'
import type { Bucket } from '../graph/trace/bucket.ts'
import type { RankGroup } from '../graph/trace/exchange.ts'
import type { Parameter } from '../graph/trace/parameter.ts'
import { type Tensor, TracedTensor } from '../graph/trace/tensor.ts'
import { activeTrace, type GradientControl, type Trace } from '../graph/trace/trace.ts'
import { GraphValue } from '../graph/trace/value.ts'
import { fromScalar } from '../kernels/from-scalar/from-scalar.ts'
import {
  clipFactor,
  joinStats,
  maxJoined,
  withoutFactor,
} from '../kernels/grad-clip/clip-factor.ts'
import { clipValue } from '../kernels/grad-clip/clip-value.ts'
import { gradStats } from '../kernels/grad-clip/grad-stats.ts'
import type { NormKind } from '../kernels/grad-clip/norm.ts'
import type { ScalarSlot } from '../kernels/op.ts'
import { syncRanks } from '../kernels/sync-ranks/sync-ranks.ts'
import { TabringError } from '../util/errors.ts'
import { checkFlag, checkNumber, checkOptions } from '../util/options.ts'
import { tensorType } from '../util/shape.ts'
import { bucketsBehind } from './parameter-buckets.ts'

/** A limit of at least 0, or a function that returns it, called as each step begins. */
export type Limit = number | (() => number)

export interface ClipGradNormOptions {
  /**
   * Which norm; default 2. p above 0: (sum of |g|^p)^(1/p); Infinity and -Infinity: the largest and smallest |g|; 0: the number of nonzero
   * elements.
   *
   * |g|^p is computed in float32, so a p far from 2 may overflow or underflow, as in PyTorch.
   */
  normType?: number
  /** True if an infinite or NaN norm is an error; default false. */
  errorIfNonfinite?: boolean
}

/** The slot of a limit. A run whose limit is wrong is refused before anything counts it. */
function slotOf(where: string, name: string, limit: Limit, trace: Trace): ScalarSlot {
  const check = (value: number) =>
    checkNumber(where, name, value, isLimit, 'a number of at least 0', true)
  let value = Number.NaN
  if (typeof limit !== 'function') {
    check(limit)
    value = limit
  } else {
    trace.refusals.push(() => {
      value = limit()
      check(value)
    })
  }
  return trace.scalars.add(() => value)
}

const isLimit = (value: number) => value >= 0

/**
 * Scales the gradients of `parameters` so that their total norm is at most `maxNorm`; returns the norm before clipping.
 *
 * Like torch.nn.utils.clip_grad_norm_: call it between `backward` and `optimizer.step` in a compiled function. The update applies the
 * factor as it reads the gradients; `parameter.grad` does not change. The norm may be an output of the function, but not the input of an
 * op. In a micro-step of gradient accumulation nothing is clipped and the norm is 0.
 *
 * The norm treats all gradients as one vector, as PyTorch documents; for `normType` 0 PyTorch counts parameters instead. With a NaN norm
 * all gradients become NaN, as in PyTorch. With `errorIfNonfinite`, a step with an infinite or NaN norm skips its update on the device, and
 * its run rejects with `train.nan` when its outputs arrive; runs already in flight continue.
 * order: fixed, by bucket, then by rank.
 * cost: one more pass over the gradients, for -Infinity one dispatch per parameter; with several ranks also 8 bytes per rank and a wait for
 * all buckets before the first update.
 * errors: `graph.misuse` before backward, after step, or for only some parameters of a group.
 */
export function clipGradNorm(
  parameters: readonly Parameter[],
  maxNorm: Limit,
  options: ClipGradNormOptions = {},
): Tensor {
  const known = { normType: 'number', errorIfNonfinite: true } as const
  const { normType = 2, errorIfNonfinite = false } = checkOptions('clipGradNorm', options, known)
  const trace = activeTrace('clipGradNorm')
  checkFlag('clipGradNorm', 'errorIfNonfinite', errorIfNonfinite)
  const slot = slotOf('clipGradNorm', 'maxNorm', maxNorm, trace)
  if (trace.accumulation?.part === 'add') {
    const [zero] = trace.emit(fromScalar, [], { slot: trace.scalars.add(() => 0) })
    return new TracedTensor(zero)
  }
  const norm = kindOf(normType)
  if (norm === 'smallest' && parameters.some((parameter) => parameter.sharedBy)) {
    throw new TabringError(
      'graph.misuse',
      'clipGradNorm: normType -Infinity does not work with parameters that ranks divide, as fullyShard and parallelizeModule do. Use another norm.',
    )
  }
  trace.consistency.add({
    of: 'clipGradNorm',
    fixed: `normType ${normType}, errorIfNonfinite ${errorIfNonfinite}`,
    read: (scalars) => [['maxNorm', scalars[slot.slot]]],
  })
  const buckets = bucketsBehind(parameters, trace, 'clipGradNorm')
  const before = commonControl(buckets, trace)
  const stats = statsOf(buckets, norm, trace)
  const [total, control] = trace.emitJoint(clipFactor, before ? [stats, before.value] : [stats], {
    norm,
    maxNorm: slot,
    ...(errorIfNonfinite && { skipsNonfinite: true }),
  })
  const maySkip = errorIfNonfinite || (before?.maySkip ?? false)
  for (const bucket of buckets) trace.controls.set(bucket, { value: control, maySkip })
  if (errorIfNonfinite) refuseNonfinite(trace, total)
  return new TracedTensor(total)
}

/** Makes a run reject whose norm is infinite or NaN. */
function refuseNonfinite(trace: Trace, value: GraphValue): void {
  trace.checks.push({
    name: `norm of gradients ${trace.checks.length}`,
    value,
    refuse: ([norm]) =>
      Number.isFinite(norm)
        ? undefined
        : new TabringError(
            'train.nan',
            `clipGradNorm: the gradient norm is ${norm}. The update was skipped. Lower the learning rate, or remove errorIfNonfinite.`,
          ),
  })
}

/**
 * Clips every element of the gradients of `parameters` to -limit .. limit, in place in their buckets.
 *
 * Like torch.nn.utils.clip_grad_value_, between `backward` and `optimizer.step`. cost: one dispatch per bucket. errors: as clipGradNorm.
 */
export function clipGradValue(parameters: readonly Parameter[], limit: Limit): void {
  const trace = activeTrace('clipGradValue')
  const slot = slotOf('clipGradValue', 'limit', limit, trace)
  if (trace.accumulation?.part === 'add') return
  const buckets = bucketsBehind(parameters, trace, 'clipGradValue')
  const before = commonControl(buckets, trace)
  trace.consistency.add({
    of: 'clipGradValue',
    fixed: 'clips',
    read: (scalars) => [['limit', scalars[slot.slot]]],
  })
  for (const bucket of buckets) {
    const grad = ownGradient(bucket, trace)
    const length = grad.type.shape[0]
    if (length === 0) continue
    trace.emitJoint(clipValue, before ? [grad, before.value] : [grad], {
      settings: { limit: slot },
      start: 0,
      length,
    })
  }
  if (!before) return
  // The factor is in the gradients now; whether the update is left out still holds.
  const [value] = trace.emitJoint(withoutFactor, [before.value], {})
  for (const bucket of buckets) trace.controls.set(bucket, { value, maySkip: before.maySkip })
}

/** This rank's part of a bucket's gradients. */
export function ownGradient(bucket: Bucket, trace: Trace): GraphValue {
  const { start, end } = bucket.ownSlice(trace.exchange)
  return new GraphValue(tensorType([end - start]), {
    kind: 'pool',
    pool: bucket.gradientPool,
    start,
  })
}

/**
 * (norm's total before its root, 1 if anything is infinite or NaN) over the gradients of all buckets and all ranks: [2].
 *
 * The gradients are as they lie in the buckets, without their control's factor.
 */
export function statsOf(buckets: readonly Bucket[], norm: NormKind, trace: Trace): GraphValue {
  const join = (some: readonly GraphValue[]) => trace.emitJoint(joinStats, some, { norm })[0]
  const joinAll = (some: readonly GraphValue[]): GraphValue => {
    let parts = some
    if (parts.length === 0) return join([])
    while (parts.length > 1) {
      const groups: GraphValue[][] = []
      for (let at = 0; at < parts.length; at += maxJoined)
        groups.push(parts.slice(at, at + maxJoined))
      parts = groups.map(join)
    }
    return parts[0]
  }
  // Other ranks have the rest of some parameters; all others count once.
  const groups = [...new Set(buckets.map(({ sharedBy }) => sharedBy))]
  const stats = joinAll(
    groups.map((ranks) => {
      const some = buckets.filter(({ sharedBy }) => sharedBy === ranks)
      const own = joinAll(some.flatMap((bucket) => statsIn(bucket, norm, trace)))
      return ranks ? join([statsOfRanks(own, ranks, trace)]) : own
    }),
  )
  if (trace.exchange && trace.exchange.size > 1) {
    const pool = new Pool('joint number', poolAlignment)
    trace.reductions.push({
      node: stats.node!,
      pool,
      join: norm === 'largest' || norm === 'smallest' ? 'largest' : 'sum',
    })
  }
  return stats
}

function statsIn(bucket: Bucket, norm: NormKind, trace: Trace): GraphValue[] {
  const grad = ownGradient(bucket, trace)
  // The zeros between parameters count in no norm but the smallest element's.
  const ranges =
    norm === 'smallest' ? rangesOf(bucket, trace) : [{ start: 0, length: grad.type.shape[0] }]
  return ranges
    .filter(({ length }) => length > 0)
    .map((range) => trace.emitJoint(gradStats, [grad], { norm, ...range })[0])
}

/** The pairs of all ranks, in rank order. */
function statsOfRanks(own: GraphValue, ranks: RankGroup, trace: Trace): GraphValue {
  const { rank, size } = ranks
  const group = trace.syncPoints!.numberOf(ranks)
  const attrs = { syncPoint: 'gather', rank, size, group } as const
  return trace.emitJoint(syncRanks, [own], attrs)[0]
}

/** Where each parameter's gradient lies in this rank's part of a bucket's. */
function rangesOf(bucket: Bucket, trace: Trace): { start: number; length: number }[] {
  const own = bucket.ownSlice(trace.exchange)
  return bucket.parameters.map(({ count }, i) => {
    const start = Math.max(bucket.starts[i], own.start)
    return { start: start - own.start, length: Math.min(bucket.starts[i] + count, own.end) - start }
  })
}

function kindOf(normType: number): NormKind {
  if (normType === 2) return 'l2'
  if (normType === 1) return 'l1'
  if (normType === Number.POSITIVE_INFINITY) return 'largest'
  if (normType === Number.NEGATIVE_INFINITY) return 'smallest'
  if (normType === 0) return 'count'
  // Both the power and the root are float32 numbers.
  const isPower =
    normType > 0 && [normType, 1 / normType].every((p) => Number.isFinite(Math.fround(p)))
  if (isPower) return `p${normType}`
  throw new TabringError(
    'config.invalid',
    `clipGradNorm: normType must be a number of at least 0, Infinity or -Infinity, got ${normType}. The usual value is 2.`,
  )
}

/** The control that all these buckets have. errors: `graph.misuse` where they differ. */
function commonControl(buckets: readonly Bucket[], trace: Trace): GradientControl | undefined {
  const first = trace.controls.get(buckets[0])
  if (buckets.some((bucket) => trace.controls.get(bucket)?.value !== first?.value)) {
    throw new TabringError(
      'graph.misuse',
      'clip: some of these gradients were clipped or unscaled separately from the others. Pass all of them in each call.',
    )
  }
  return first
}
