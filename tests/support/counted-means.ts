import { DistributedDataParallel } from '../../src/ddp/data-parallel/data-parallel.ts'
import { compile } from '../../src/graph/compile/compile.ts'
import { compileAccumulated } from '../../src/graph/compile/compile-accumulated.ts'
import { crossEntropy, sampleCount } from '../../src/graph/functions/linear.ts'
import type { AnyRuntime } from '../../src/graph/memory/runtime.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import { Linear, ReLU } from '../../src/nn/layers.ts'
import { Sequential } from '../../src/nn/module.ts'
import { clipGradNorm } from '../../src/optim/clip.ts'
import { SGD } from '../../src/optim/sgd.ts'
import type { ProcessGroup } from '../../src/peer/group/group.ts'
import { tensorType } from '../../src/util/shape.ts'
import { formulaUniform, formulaWord } from './formula-data.ts'
import { ringOf } from './process-ring.ts'

/** The classifier of tests/golden/counted_means.py. */
const [rows, features, hidden, classes] = [8, 6, 5, 3]
export const countedRows = rows

export interface CountedCase {
  readonly kind: string
  /** By rank, what counts in each of its micro-steps. */
  readonly counts: readonly (readonly number[])[]
}

export interface CountedRank {
  readonly group: ProcessGroup
  readonly model: Sequential
  readonly ddp: DistributedDataParallel
  /** Runs a micro-step; `count` undefined where nothing is counted. */
  run(
    x: Float32Array<ArrayBuffer>,
    y: Int32Array<ArrayBuffer>,
    scalars: Readonly<Record<string, number>>,
  ): Promise<number>
  destroy(): void
}

export interface CountedOptions {
  readonly clipsTo?: number
  readonly prepare?: (ddp: DistributedDataParallel, rank: number) => void
  /** Default: two buckets. */
  readonly bucketCapMb?: number
}

/** Ranks with the script's model, compiled for a step of one run, or of several micro-steps. */
export async function countedRanks(
  { kind, counts }: CountedCase,
  runtime: AnyRuntime,
  { clipsTo, prepare, bucketCapMb = 0.0005 }: CountedOptions = {},
): Promise<CountedRank[]> {
  const groups = await ringOf(counts.length)
  const micros = counts[0].length
  return Promise.all(
    groups.map(async (group, rank) => {
      const model = new Sequential(
        new Linear(features, hidden),
        new ReLU(),
        new Linear(hidden, classes),
      )
      for (const [i, parameter] of model.parameters().entries())
        parameter.assign(formulaUniform(1 + i, parameter.count, 0.5))
      const ddp = new DistributedDataParallel(model, { processGroup: group, bucketCapMb })
      prepare?.(ddp, rank)
      const optimizer = new SGD(ddp.parameters(), { lr: 0.3, momentum: 0.5 })
      const step = ({ x, y }: Record<string, Tensor>) => {
        const out = ddp.forward(x)
        const options = kind === 'samples' ? { count: sampleCount() } : {}
        const loss = kind === 'plain' ? out.square().mean() : crossEntropy(out, y, options)
        optimizer.zeroGrad()
        loss.backward()
        if (clipsTo !== undefined) clipGradNorm(ddp.parameters(), clipsTo)
        optimizer.step()
        return { loss }
      }
      const types = { x: tensorType([rows, features]), y: tensorType([rows], 'i32') }
      const program =
        micros === 1
          ? await compile(step, types, { runtime })
          : await compileAccumulated(step, types, { runtime, steps: micros })
      return {
        group,
        model,
        ddp,
        run: async (x, y, scalars) => (await program.run({ x, y }, scalars)).loss[0],
        destroy: () => {
          program.destroy()
          group.destroy()
        },
      }
    }),
  )
}

/** What a rank has for a micro-step, and how much of it counts. */
export function countedBatch({ kind, counts }: CountedCase, step: number, rank: number, micro = 0) {
  const count = counts[(rank + step) % counts.length][micro]
  const seed = 1000 + 100 * step + 10 * rank + micro
  const y = Int32Array.from({ length: rows }, (_, row) => {
    const isIgnored = kind === 'classes' && (row * 3 + step) % rows >= count
    return isIgnored ? -100 : formulaWord(seed, row) % classes
  })
  return { x: formulaUniform(seed, rows * features, 1), y, count }
}

/** Trains all ranks for some steps; returns each rank's loss of each update. `scalarsOf`: what a rank gives a run. */
export function trainCounted(
  ranks: readonly CountedRank[],
  one: CountedCase,
  steps: number,
  scalarsOf = (count: number): Record<string, number> => (one.kind === 'samples' ? { count } : {}),
): Promise<number[][]> {
  return Promise.all(
    ranks.map(async ({ run }, rank) => {
      const losses: number[] = []
      for (let step = 0; step < steps; step++) {
        let loss = 0
        for (const micro of one.counts[0].keys()) {
          const { x, y, count } = countedBatch(one, step, rank, micro)
          loss = await run(x, y, scalarsOf(count))
        }
        losses.push(loss)
      }
      return losses
    }),
  )
}

/** Each rank's parameters, one after the other. */
export const countedParameters = (ranks: readonly CountedRank[]): Promise<number[][]> =>
  Promise.all(
    ranks.map(async ({ model }) => {
      const all = await Promise.all(model.parameters().map((parameter) => parameter.read()))
      return all.flatMap((values) => [...values])
    }),
  )

export const endCounted = (ranks: readonly CountedRank[]): void => {
  for (const rank of ranks) rank.destroy()
}
