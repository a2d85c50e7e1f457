import * as tf from '@tensorflow/tfjs'
import { openTfjs } from '../../src/measure/peers/tfjs.ts'
import { adam, type StepName, type Trainer, targetsOf, type Weights } from './task.ts'
import { tfjsModels } from './tfjs-models.ts'

/** TensorFlow.js on its WebGPU backend, with the optimizer it comes with. */

export async function tfjsTrainer(name: StepName, weights: Weights): Promise<Trainer> {
  await openTfjs()
  const model = tfjsModels[name]
  const { rows, classes } = targetsOf[name]
  const variables = Object.fromEntries(
    Object.entries(weights).map(([key, { data, shape }]) => [
      key,
      tf.variable(tf.tensor(data.slice(), shape)),
    ]),
  )
  const optimizer = tf.train.adam(adam.lr, adam.beta1, adam.beta2, adam.eps)
  return {
    async step(batch, wantsLoss) {
      const x = model.inputs(batch)
      const y = tf.tensor2d(batch.oneHotTargets, [rows, classes])
      const loss = optimizer.minimize(
        () => tf.losses.softmaxCrossEntropy(y, model.logits(variables, x)) as tf.Scalar,
        wantsLoss,
        Object.values(variables),
      )
      x.dispose()
      y.dispose()
      if (!loss) return Number.NaN
      const [value] = await loss.data()
      loss.dispose()
      return value
    },
    async settle() {
      // The queue runs in order: what can be read now was written by the last update.
      await Object.values(variables).at(-1)!.data()
    },
  }
}
