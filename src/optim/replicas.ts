import type { RankGroup } from '../graph/trace/exchange.ts'
import type { Parameter } from '../graph/trace/parameter.ts'
import type { Trace } from '../graph/trace/trace.ts'
import type { GraphValue } from '../graph/trace/value.ts'
import { reshape } from '../kernels/reshape/reshape.ts'
import { syncRanks } from '../kernels/sync-ranks/sync-ranks.ts'

/** Gradients that replicas sum together: as many as DistributedDataParallel's buckets hold in PyTorch. units: bytes. */
export const replicaBucketBytes = 25 * 1024 * 1024

/**
 * The gradients of a bucket, summed over the ranks that hold replicas of its parameters, where they have any.
 *
 * The sum begins when the bucket's last gradient is there and travels during the rest of backward.
 */
export function sumOverReplicas(
  trace: Trace,
  parameters: readonly Parameter[],
  gradients: readonly GraphValue[],
): GraphValue[] {
  const sums = [...gradients]
  const groups = new Map<RankGroup, number[]>()
  for (const [i, { replicatedBy }] of parameters.entries()) {
    if (replicatedBy && replicatedBy.size > 1)
      groups.set(replicatedBy, [...(groups.get(replicatedBy) ?? []), i])
  }
  for (const [ranks, places] of groups) {
    const flat = places.map((i) => trace.emit(reshape, [gradients[i]], flatShape(parameters[i]))[0])
    const { rank, size } = ranks
    const group = trace.syncPoints!.numberOf(ranks)
    const summed = trace.emit(syncRanks, flat, { syncPoint: 'sum', rank, size, group })
    for (const [at, i] of places.entries())
      sums[i] = trace.emit(reshape, [summed[at]], { shape: parameters[i].value.type.shape })[0]
  }
  return sums
}

const flatShape = ({ count }: Parameter) => ({ shape: [count] })
