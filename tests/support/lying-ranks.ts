import { vi } from 'vitest'
import type { DistributedDataParallelOptions } from '../../src/ddp/data-parallel/data-parallel.ts'
import type { RingExchange } from '../../src/ddp/data-parallel/ring-exchange.ts'
import { allreduceHook } from '../../src/ddp/hooks/comm-hooks.ts'
import type { LeftOut } from '../../src/ddp/hooks/left-out.ts'
import { hookReducer } from '../../src/ddp/hooks/reducer.ts'
import { ReferenceRuntime } from '../../src/graph/memory/runtime.ts'
import { type Counts, noteSections } from '../../src/graph/trace/step-notes.ts'
import { classifiers, endAll, parametersOf, samplesOf } from './classification.ts'
import { type Lie, liars } from './liars.ts'

const hidden = 16
const features = 32
const classes = 8
const rows = 8
export const liar = 5

export interface LyingRun {
  /** Of 320 other samples. units: percent. */
  readonly accuracy: number
  /** Reports to rank 0. */
  readonly leftOut: readonly LeftOut[]
  readonly lastLoss: number
}

/**
 * Trains 8 ranks, one of which lies about its gradients as `liars[kind]` does; with undefined none does. `counts`: what it reports of its
 * samples in place of the truth.
 */
export async function trainWithLiar(
  kind: string | undefined,
  options: Pick<DistributedDataParallelOptions, 'aggregation' | 'trust'>,
  {
    steps = 40,
    counts,
    size = 8,
    liars: lying = [liar % size],
  }: {
    steps?: number
    counts?: Partial<Counts>
    size?: number
    /** Ranks. */
    liars?: readonly number[]
  } = {},
): Promise<LyingRun> {
  const lies = new Map<number, Lie>()
  if (kind !== undefined) for (const rank of lying) lies.set(rank, liars[kind]!())
  /** Rank 0's gradients, by bucket, for one that copies them. */
  const posted = new Map<number, Float32Array>()
  const leftOut: LeftOut[][] = Array.from({ length: size }, () => [])
  const prepare: Parameters<typeof classifiers>[2] = (ddp, rank) => {
    const exchange = ddp.parameters()[0]!.exchange as RingExchange
    const { robust } = exchange
    exchange.reducer = hookReducer(async (bucket) => {
      if (rank === 0) posted.set(bucket.index(), bucket.buffer().slice())
      lies.get(rank)?.(bucket.buffer(), bucket, posted.get(bucket.index()))
      return robust ? robust.reduce(bucket) : allreduceHook(null, bucket)
    }, robust?.sumBeside)
    if (lying.includes(rank) && counts) {
      const group = ddp.processGroup
      const gather = group.allGatherConcat.bind(group)
      vi.spyOn(group, 'allGatherConcat').mockImplementation((own, key) => {
        const received = own as Float32Array<ArrayBuffer>
        noteSections.write(received.subarray(received.length - noteSections.length), counts)
        return gather(own, key)
      })
    }
    if (robust) robust.onLeftOut = (found) => leftOut[rank]!.push(found)
  }
  const ranks = await classifiers(size, new ReferenceRuntime(), prepare, {
    ...options,
    hidden,
    // Two buckets.
    bucketCapMb: 0.002,
  })
  let lastLoss = Number.NaN
  for (let step = 0; step < steps; step++) {
    const outputs = await Promise.all(
      ranks.map(({ program }, rank) => program.run(samplesOf((step * size + rank) * rows))),
    )
    lastLoss = outputs[0]!.loss[0]!
  }
  const all = await parametersOf(ranks)
  endAll(ranks)
  for (const own of all) if (String(own) !== String(all[0])) throw new Error('replicas differ')
  for (const own of leftOut)
    if (JSON.stringify(own) !== JSON.stringify(leftOut[0]))
      throw new Error('ranks were told other things')
  return { accuracy: accuracyOf(all[0]!), leftOut: leftOut[0]!, lastLoss }
}

/** Of a classifier with these parameters. */
function accuracyOf(parameters: readonly number[]): number {
  const left = [...parameters]
  const take = (count: number) => left.splice(0, count)
  const first = { weight: take(hidden * features), bias: take(hidden) }
  const second = { weight: take(classes * hidden), bias: take(classes) }
  const apply = ({ weight, bias }: typeof first, x: readonly number[]) =>
    bias.map((b, o) => x.reduce((sum, value, i) => sum + value * weight[o * x.length + i]!, b))
  let right = 0
  let total = 0
  for (let batch = 0; batch < 40; batch++) {
    const { x, y } = samplesOf(1e6 + batch * rows)
    for (let row = 0; row < rows; row++) {
      const sample = [...x.subarray(row * features, (row + 1) * features)]
      const outputs = apply(
        second,
        apply(first, sample).map((z) => Math.max(0, z)),
      )
      if (outputs.indexOf(Math.max(...outputs)) === y[row]) right++
      total++
    }
  }
  return (100 * right) / total
}
