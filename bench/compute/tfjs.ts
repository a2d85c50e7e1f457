import * as tf from '@tensorflow/tfjs'
import '@tensorflow/tfjs-backend-webgpu'
import {
  adam,
  type Matmul,
  type MatmulTask,
  type StepName,
  type Trainer,
  targetsOf,
  type Weights,
} from './task.ts'
import { tfjsModels } from './tfjs-models.ts'

/** TensorFlow.js on its WebGPU backend, with the optimizer it comes with. */

async function open(): Promise<void> {
  if (!(await tf.setBackend('webgpu'))) throw new Error('TensorFlow.js: no webgpu backend here')
  await tf.ready()
}

export async function tfjsTrainer(name: StepName, weights: Weights): Promise<Trainer> {
  await open()
  const model = tfjsModels[name]
  const { rows, classes } = targetsOf[name]
  const variables = Object.fromEntries(
    Object.entries(model.weights(weights)).map(([key, { data, shape }]) => [
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

export async function tfjsMatmul(
  { form, m, k, n }: MatmulTask,
  a: Float32Array<ArrayBuffer>,
  b: Float32Array<ArrayBuffer>,
): Promise<Matmul> {
  await open()
  const left = tf.tensor2d(a, form === 'tn' ? [k, m] : [m, k])
  const right = tf.tensor2d(b, form === 'nt' ? [n, k] : [k, n])
  const product = () => tf.matMul(left, right, form === 'tn', form === 'nt')
  // The public way to wait is a readback, which would add a copy of the product.
  const backend = tf.backend() as unknown as {
    endComputePassEncoder(): void
    submitQueue(): void
    queue: GPUQueue
  }
  return {
    async run(times) {
      const results = Array.from({ length: times }, product)
      backend.endComputePassEncoder()
      backend.submitQueue()
      await backend.queue.onSubmittedWorkDone()
      for (const one of results) one.dispose()
    },
    async result() {
      const one = product()
      const values = (await one.data()) as Float32Array
      one.dispose()
      return values
    },
    dispose() {
      left.dispose()
      right.dispose()
    },
  }
}
