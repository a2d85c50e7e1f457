import { compile } from '../../src/graph/compile/compile.ts'
import { crossEntropy, stepScalar } from '../../src/graph/functions/linear.ts'
import type { TracedFunction } from '../../src/graph/plan/prepare.ts'
import type { StepProgram } from '../../src/graph/plan/step-program.ts'
import type { Module } from '../../src/nn/module.ts'
import { AdamW } from '../../src/optim/adam.ts'
import type { Optimizer } from '../../src/optim/optimizer.ts'
import { SGD } from '../../src/optim/sgd.ts'
import { type Shape, tensorType } from '../../src/util/shape.ts'
import golden from '../golden/trajectories.json'
import { formulaSamples, formulaUniform } from './formula-data.ts'
import { models } from './models.ts'
import { testRuntime } from './run-op.ts'

export type GoldenRun = (typeof golden.runs)[number]
export const goldenRuns = golden.runs
export const goldenSeeds = golden.data.seeds
export const goldenEvaluation = golden.data.evaluation

/** The run's model with the weights that PyTorch began with. */
export function goldenModel(run: GoldenRun): Module {
  const model = models[run.model as 'mlp' | 'cnn'].make()
  model.loadStateDict(
    Object.fromEntries(
      run.weights.map(({ key, shape, seed, bound }) => {
        const count = (shape as number[]).reduce((product, d) => product * d, 1)
        return [
          key,
          { shape, data: formulaUniform(seed, count, bound) as Float32Array<ArrayBuffer> },
        ]
      }),
    ),
  )
  return model
}

export function goldenOptimizer(run: GoldenRun, model: Module): Optimizer {
  const options = run.options as Record<string, number>
  return run.optimizer.toLowerCase() === 'adamw'
    ? new AdamW(model.parameters(), { lr: options.lr, weightDecay: options.weight_decay })
    : new SGD(model.parameters(), { lr: options.lr, momentum: options.momentum })
}

/** Forward, backward and update, as user code writes it. */
export const trainingStep =
  (model: Module, optimizer: Optimizer): TracedFunction =>
  ({ x, y }) => {
    const loss = crossEntropy(model.forward(x), y, { count: stepScalar('count') })
    optimizer.zeroGrad()
    loss.backward()
    optimizer.step()
    return { loss }
  }

export const stepTypes = (model: string, rows: number) => ({
  x: tensorType([rows, ...(models[model as 'mlp' | 'cnn'].sampleShape as Shape)]),
  y: tensorType([rows], 'i32' as const),
})

export async function compileTraining(
  run: GoldenRun,
  model: Module,
  rows: number,
  options: { useNaiveKernels?: boolean } = {},
): Promise<{ program: StepProgram; optimizer: Optimizer }> {
  const optimizer = goldenOptimizer(run, model)
  const program = await compile(trainingStep(model, optimizer), stepTypes(run.model, rows), {
    runtime: await testRuntime(),
    ...options,
  })
  return { program, optimizer }
}

/** Samples [first, first + count) padded with zeros to `rows`. */
export function batchOf(first: number, count: number, rows = count) {
  const { images, labels } = formulaSamples(goldenSeeds, first, count)
  const x = new Float32Array(rows * 784)
  const y = new Int32Array(rows)
  x.set(images)
  y.set(labels)
  return { x, y }
}

/** The losses of the run's first `steps` steps on one rank. */
export async function losses(
  run: GoldenRun,
  program: StepProgram,
  steps: number,
): Promise<number[]> {
  const result: number[] = []
  for (let step = 0; step < steps; step++) {
    const batch = batchOf(step * run.batchSize, run.batchSize)
    const outputs = await program.run(batch, { count: run.batchSize })
    result.push(outputs.loss[0])
  }
  return result
}
