import {
  DistributedDataParallel,
  type DistributedDataParallelOptions,
} from '../../src/ddp/data-parallel/data-parallel.ts'
import { compile } from '../../src/graph/compile/compile.ts'
import { crossEntropy, sampleCount } from '../../src/graph/functions/linear.ts'
import type { AnyRuntime } from '../../src/graph/memory/runtime.ts'
import type { StepProgram } from '../../src/graph/plan/step-program.ts'
import { manualSeed } from '../../src/nn/init.ts'
import { Linear, ReLU } from '../../src/nn/layers.ts'
import { Sequential } from '../../src/nn/module.ts'
import { clipGradNorm } from '../../src/optim/clip.ts'
import { SGD } from '../../src/optim/sgd.ts'
import type { CollectiveGroup } from '../../src/peer/group/collective-group.ts'
import type { ProcessGroup } from '../../src/peer/group/group.ts'
import { uniform } from '../../src/util/random.ts'
import { tensorType } from '../../src/util/shape.ts'
import { ringOf } from './process-ring.ts'

const features = 32
const classes = 8
const rows = 8

export interface ClassifyingRank<Group extends CollectiveGroup = ProcessGroup> {
  readonly group: Group
  readonly model: Sequential
  readonly ddp: DistributedDataParallel
  readonly optimizer: SGD
  readonly program: StepProgram
}

export interface ClassifierOptions extends DistributedDataParallelOptions {
  clipsTo?: number
  hidden?: number
  /** Called before the step is compiled. */
  load?: (
    parts: { model: Sequential; optimizer: SGD },
    rank: number,
    ddp: DistributedDataParallel,
  ) => Promise<unknown>
}

type Prepare = (ddp: DistributedDataParallel, rank: number) => void

/** Ranks of a two-layer classifier in a ring, each compiled for 8 rows. `prepare` may register hooks. */
export const classifiers = async (
  size: number,
  runtime: AnyRuntime,
  prepare?: Prepare,
  options?: ClassifierOptions,
): Promise<ClassifyingRank[]> => classifiersOf(await ringOf(size), runtime, prepare, options)

/** As `classifiers`, of some groups' ranks. */
export function classifiersOf<Group extends CollectiveGroup>(
  groups: readonly Group[],
  runtime: AnyRuntime,
  prepare: Prepare = () => undefined,
  { clipsTo, hidden = 64, load, ...options }: ClassifierOptions = {},
): Promise<ClassifyingRank<Group>[]> {
  return Promise.all(
    groups.map(async (group, rank) => {
      manualSeed(4)
      const model = new Sequential(
        new Linear(features, hidden),
        new ReLU(),
        new Linear(hidden, classes),
      )
      const ddp = new DistributedDataParallel(model, {
        processGroup: group,
        // Two buckets.
        bucketCapMb: 0.006,
        ...options,
      })
      prepare(ddp, rank)
      const optimizer = new SGD(ddp.parameters(), { lr: 0.5, momentum: 0.5 })
      await load?.({ model, optimizer }, rank, ddp)
      const program = await compile(
        ({ x, y }) => {
          const loss = crossEntropy(ddp.forward(x), y, { count: sampleCount() })
          optimizer.zeroGrad()
          loss.backward()
          if (clipsTo !== undefined) clipGradNorm(ddp.parameters(), clipsTo)
          optimizer.step()
          return { loss }
        },
        { x: tensorType([rows, features]), y: tensorType([rows], 'i32') },
        { runtime },
      )
      return { group, model, ddp, optimizer, program }
    }),
  )
}

/** The middle of each class's samples. */
const corners = Array.from({ length: classes }, (_, y) => uniform(12, y, features, -1, 1))

/** Samples of one class lie around its corner. */
export function samplesOf(first: number): {
  x: Float32Array<ArrayBuffer>
  y: Int32Array<ArrayBuffer>
} {
  const y = Int32Array.from({ length: rows }, (_, row) => (first + row) % classes)
  const noise = uniform(11, first, rows * features, -1, 1)
  const x = noise.map((value, at) => value + corners[y[Math.floor(at / features)]][at % features])
  return { x, y }
}

/** Trains `steps` steps, rank r on `counts[r]` samples in each; returns the mean loss of the last five. */
export async function train(
  ranks: readonly ClassifyingRank<CollectiveGroup>[],
  steps: number,
  counts: readonly number[] = ranks.map(() => rows),
  firstStep = 0,
): Promise<number> {
  const total = counts.reduce((a, b) => a + b, 0)
  const losses: number[] = []
  for (let step = firstStep; step < firstStep + steps; step++) {
    const outputs = await Promise.all(
      ranks.map(({ program }, rank) =>
        program.run(samplesOf((step * ranks.length + rank) * rows), {
          count: counts[rank],
          gradientWeight: counts[rank] / total,
        }),
      ),
    )
    losses.push(outputs[0].loss[0])
  }
  return losses.slice(-5).reduce((a, b) => a + b, 0) / Math.min(5, steps)
}

/** Each rank's parameters, one after the other. */
export const parametersOf = (
  ranks: readonly ClassifyingRank<CollectiveGroup>[],
): Promise<number[][]> =>
  Promise.all(
    ranks.map(async ({ model }) => {
      const all = await Promise.all(model.parameters().map((parameter) => parameter.read()))
      return all.flatMap((values) => [...values])
    }),
  )

export function endAll(ranks: readonly ClassifyingRank[]): void {
  for (const { group, program } of ranks) {
    group.destroy()
    program.destroy()
  }
}

/** The loss of one step, by rank, each on its own samples. */
export async function lossesOfStep(
  runtime: AnyRuntime,
  options: ClassifierOptions,
): Promise<{ readonly losses: number[]; readonly parameters: number[][] }> {
  const ranks = await classifiers(3, runtime, undefined, options)
  const outputs = await Promise.all(
    ranks.map(({ program }, rank) => program.run(samplesOf(rank * rows))),
  )
  const parameters = await parametersOf(ranks)
  endAll(ranks)
  return { losses: outputs.map(({ loss }) => loss![0]!), parameters }
}
