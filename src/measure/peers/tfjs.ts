import * as tf from '@tensorflow/tfjs'
import '@tensorflow/tfjs-backend-webgpu'
import { leftShape, type MakeProduct, rightShape } from '../product.ts'

/** Makes TensorFlow.js compute on its WebGPU backend. errors: where it has none. */
export async function openTfjs(): Promise<void> {
  if (!(await tf.setBackend('webgpu'))) throw new Error('TensorFlow.js: no webgpu backend here')
  await tf.ready()
}

/** `tf.matMul` on the WebGPU backend. */
export const tfjsProduct: MakeProduct = async (task, a, b) => {
  await openTfjs()
  const { form } = task
  const left = tf.tensor2d(a, leftShape(task))
  const right = tf.tensor2d(b, rightShape(task))
  const product = () => tf.matMul(left, right, form === 'tn', form === 'nt')
  // The public way to wait is a readback, which would add a copy of the product.
  const backend = tf.backend() as unknown as {
    commandEncoder: GPUCommandEncoder | null
    endComputePassEncoder(): void
    submitQueue(): void
    queue: GPUQueue
  }
  return {
    async run(times) {
      const results = Array.from({ length: times }, product)
      // TensorFlow.js also submits from time to time; then there is nothing left to submit.
      if (backend.commandEncoder) {
        backend.endComputePassEncoder()
        backend.submitQueue()
      }
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
