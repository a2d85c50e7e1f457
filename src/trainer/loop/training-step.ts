import { sampleCount } from '../../graph/functions/linear.ts'
import type { TracedFunction } from '../../graph/plan/prepare.ts'
import type { StepProgram } from '../../graph/plan/step-program.ts'
import { autocast } from '../../graph/trace/autocast.ts'
import type { Parameter } from '../../graph/trace/parameter.ts'
import { randomScalarNames } from '../../graph/trace/random.ts'
import { elementwise, type Tensor } from '../../graph/trace/tensor.ts'
import { AdamW } from '../../optim/adam.ts'
import type { GradScaler } from '../../optim/grad-scaler.ts'
import type { Optimizer } from '../../optim/optimizer.ts'
import { SGD } from '../../optim/sgd.ts'
import { loadPart } from '../../util/load-part.ts'
import type { TrainConfig } from '../settings/config.ts'
import { learningRateOf } from '../settings/demo-meta.ts'
import type { Task, TaskInputs } from '../settings/task.ts'
import type { SharedModel } from './shared-model.ts'

/** Parts of a model that a step needs. */
type Trained = Pick<SharedModel, 'model' | 'backward' | 'mean'>

/** The step of a task with what it needs, by the settings. errors: `part.missing`. */
export async function makeStep(task: Task, shared: Trained, config: TrainConfig) {
  const optimizer = makeOptimizer(task, shared, config)
  const scaler = config.precision === 'float16' ? await newScaler() : undefined
  const clip = await clipTo(config.clipNorm)
  return { optimizer, scaler, run: trainingStep(task, shared, optimizer, scaler, clip) }
}

/**
 * The step of a task: forward, backward, clipping and update of one batch, of which `count` rows weigh. With a scaler, in float16.
 *
 * Where the task measures something, `metric` is its mean over the same samples, of the same forward pass: as the model was before the step.
 */
export const trainingStep =
  (
    task: Task,
    shared: Trained,
    optimizer: Optimizer,
    scaler: GradScaler | undefined,
    clip?: (parameters: readonly Parameter[]) => void,
  ): TracedFunction =>
  (inputs) => {
    const update = () => {
      if (clip) {
        scaler?.unscale(optimizer)
        clip(shared.model.parameters())
      }
      if (!scaler) return optimizer.step()
      scaler.step(optimizer)
      scaler.update()
    }
    optimizer.zeroGrad()
    if (shared.backward) {
      const { loss, sum } = shared.backward(inputs, scaler)
      update()
      const metric = meanOf(sum)
      return { loss: shared.mean(loss), ...(metric && { metric: shared.mean(metric) }) }
    }
    const { loss, metric } = forwardOf(task, shared, scaler !== undefined)(inputs)
    const scaled = scaler ? scaler.scale(loss) : loss
    scaled.backward()
    update()
    return { loss: shared.mean(loss), ...(metric && { metric: shared.mean(metric) }) }
  }

/** The loss and metric of `trainingStep`, without backward. */
export const forwardOf =
  (task: Task, { model }: Pick<SharedModel, 'model'>, isHalf: boolean) =>
  (inputs: TaskInputs): { loss: Tensor; metric?: Tensor } =>
    autocast({ enabled: isHalf }, () => {
      const output = task.forward(model, inputs)
      const sum = task.measure?.(output, inputs)
      const loss = task.loss(output, inputs)
      const metric = meanOf(sum)
      return { loss, ...(metric && { metric }) }
    })

const meanOf = (sum: Tensor | undefined): Tensor | undefined =>
  sum?.div(elementwise('clampMin', { count: sampleCount(), min: 1 }))

export function makeOptimizer(
  { meta }: Task,
  { model }: Pick<SharedModel, 'model'>,
  config: TrainConfig,
): Optimizer {
  const lr = learningRateOf(config, meta)
  const parameters = model.parameters()
  return config.optimizer === 'adamw'
    ? new AdamW(parameters, { lr })
    : new SGD(parameters, { lr, momentum: 0.9 })
}

/** Returns the scalars of random masks, for a program that draws any: the step, and the global number of this rank's first sample. */
export const randomScalarsFor = (
  program: StepProgram,
  step: number,
  firstSample: number,
): Record<string, number> =>
  program.prepared.trace.scalars.has(randomScalarNames.step)
    ? { [randomScalarNames.step]: step, [randomScalarNames.sample]: firstSample }
    : {}

/** Clips gradients by their norm, inside a step. */
async function clipTo(max: number | undefined) {
  if (max === undefined) return undefined
  const { clipGradNorm } = await loadPart('clipping', () => import('../../optim/clip.ts'))
  return (parameters: readonly Parameter[]): void => void clipGradNorm(parameters, max)
}

async function newScaler(): Promise<GradScaler> {
  const scaling = await loadPart('float16', () => import('../../optim/grad-scaler.ts'))
  return new scaling.GradScaler()
}
