import { countedSamples, crossEntropy } from '../graph/functions.ts'
import type { TracedFunction } from '../graph/prepare.ts'
import { randomScalarNames } from '../graph/random.ts'
import type { StepProgram } from '../graph/step-program.ts'
import type { ModelRecipe } from '../nn/models.ts'
import { AdamW } from '../optim/adam.ts'
import type { Optimizer } from '../optim/optimizer.ts'
import { SGD } from '../optim/sgd.ts'
import { type TensorType, tensorType } from '../util/shape.ts'
import { defaultLearningRate, type TrainConfig } from './config.ts'
import type { DistributedDataParallel } from './data-parallel.ts'

/** The step of the built-in training: forward, backward and update of one batch, of which `count` rows weigh. */
export const trainingStep =
  (model: DistributedDataParallel, optimizer: Optimizer): TracedFunction =>
  ({ x, y }) => {
    const loss = crossEntropy(model.forward(x), y, { count: countedSamples() })
    optimizer.zeroGrad()
    loss.backward()
    optimizer.step()
    return { loss }
  }

/** What the step takes: `rows` samples of the model and their classes. */
export const stepTypesOf = (
  { sampleShape }: ModelRecipe,
  rows: number,
): Record<'x' | 'y', TensorType> => ({
  x: tensorType([rows, ...sampleShape]),
  y: tensorType([rows], 'i32'),
})

export function makeOptimizer(model: DistributedDataParallel, config: TrainConfig): Optimizer {
  const lr = config.lr ?? defaultLearningRate[config.model]
  const parameters = model.parameters()
  return config.optimizer === 'adamw'
    ? new AdamW(parameters, { lr })
    : new SGD(parameters, { lr, momentum: 0.9 })
}

/** What random masks depend on, for a program that draws any: the step, and the global number of this rank's first sample. */
export const randomScalarsFor = (
  program: StepProgram,
  step: number,
  firstSample: number,
): Record<string, number> =>
  program.prepared.trace.scalars.has(randomScalarNames.step)
    ? { [randomScalarNames.step]: step, [randomScalarNames.sample]: firstSample }
    : {}
