import * as tf from '@tensorflow/tfjs'
import '@tensorflow/tfjs-backend-webgpu'
import {
  adam,
  type Batch,
  batchSize,
  layers,
  type Matmul,
  type MatmulTask,
  type Trainer,
  transposed,
  type Weights,
} from './task.ts'

/** TensorFlow.js on its WebGPU backend, with the optimizer it comes with. */

async function open(): Promise<void> {
  if (!(await tf.setBackend('webgpu'))) throw new Error('TensorFlow.js: no webgpu backend here')
  await tf.ready()
}

export async function tfjsTrainer(weights: Weights): Promise<Trainer> {
  await open()
  const { inputs, hidden, classes } = layers
  const w1 = tf.variable(tf.tensor2d(transposed(weights.w1, hidden, inputs), [inputs, hidden]))
  const b1 = tf.variable(tf.tensor1d(weights.b1.slice()))
  const w2 = tf.variable(tf.tensor2d(transposed(weights.w2, classes, hidden), [hidden, classes]))
  const b2 = tf.variable(tf.tensor1d(weights.b2.slice()))
  const optimizer = tf.train.adam(adam.lr, adam.beta1, adam.beta2, adam.eps)
  return {
    async step({ pixels, oneHot }: Batch, wantsLoss) {
      const x = tf.tensor2d(pixels, [batchSize, inputs])
      const y = tf.tensor2d(oneHot, [batchSize, classes])
      const loss = optimizer.minimize(() => {
        const h = x.matMul<tf.Tensor2D>(w1).add(b1).relu<tf.Tensor2D>()
        return tf.losses.softmaxCrossEntropy(y, h.matMul(w2).add(b2)) as tf.Scalar
      }, wantsLoss)
      x.dispose()
      y.dispose()
      if (!loss) return Number.NaN
      const [value] = await loss.data()
      loss.dispose()
      return value
    },
    async settle() {
      // The queue runs in order: what can be read now was written by the last update.
      await b2.data()
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
