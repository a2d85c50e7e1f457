import type { ProductTask } from '../../src/measure/product.ts'
import golden from '../../tests/golden/bench.json'

/** What every library is timed on, and the library's side of it. */

/** 784-256-10 with ReLU; the project's CNN; a GPT of two layers. Each with mean cross entropy and Adam. */
export const stepNames = ['mlp', 'cnn', 'gpt'] as const
export type StepName = (typeof stepNames)[number]

/** As torch.optim.Adam has it: ours is AdamW without weight decay, because TensorFlow.js has Adam alone. */
export const adam = golden.adam
export const gptConfig = golden.text.config
export const imageBatch = golden.images.batchSize
export const textBatch = golden.text.batchSize
/** Values that the loss is a mean of, and classes, by step. */
export const targetsOf = {
  mlp: { rows: imageBatch, classes: 10 },
  cnn: { rows: imageBatch, classes: 10 },
  gpt: { rows: textBatch * gptConfig.blockSize, classes: gptConfig.vocabSize },
} as const satisfies Record<StepName, { rows: number; classes: number }>

/** An array as PyTorch's state dict holds it. */
export interface Weight {
  shape: number[]
  data: Float32Array<ArrayBuffer>
}
/** By PyTorch's key. */
export type Weights = Readonly<Record<string, Weight>>

/** One batch, with tokens and labels both ways: each library takes the form that suits it, made beforehand. */
export interface Batch {
  /** shape: mlp [64, 784], cnn [64, 1, 28, 28], gpt [8, 64] */
  inputs: Float32Array<ArrayBuffer> | Int32Array<ArrayBuffer>
  /** shape: gpt [512, 65], empty for images */
  oneHotInputs: Float32Array<ArrayBuffer>
  /** shape: [rows] */
  targets: Int32Array<ArrayBuffer>
  /** shape: [rows, classes] */
  oneHotTargets: Float32Array<ArrayBuffer>
}

/** The libraries that are timed, by key. */
export type Library = 'tabring' | 'tabringCpu' | 'jax' | 'jaxWasm' | 'tfjs'

/** A library and its model. */
export interface Trainer {
  /** It has no way to leave a loss on the device. */
  readonly readsEveryLoss?: boolean
  /**
   * Begins the next step: uploads the batch, forward, backward, update. Resolves with the loss.
   * Without `wantsLoss` a library that can leave the loss on the device does so.
   */
  step(batch: Batch, wantsLoss: boolean): Promise<number>
  /** Resolves when the weights of all steps begun so far can be used. */
  settle(): Promise<void>
}

/** The array with its axes in another order. */
export function permuted({ shape, data }: Weight, axes: readonly number[]): Weight {
  const strides = shape.map((_, axis) =>
    shape.slice(axis + 1).reduce((product, size) => product * size, 1),
  )
  const result = { shape: axes.map((axis) => shape[axis]), data: new Float32Array(data.length) }
  const at = axes.map(() => 0)
  for (let i = 0; i < data.length; i++) {
    result.data[i] = data[axes.reduce((sum, axis, j) => sum + at[j] * strides[axis], 0)]
    for (let j = at.length - 1; j >= 0 && ++at[j] === result.shape[j]; j--) at[j] = 0
  }
  return result
}

export interface MatmulTask extends ProductTask {
  readonly name: string
}

const cube = (side: number): MatmulTask => ({
  name: `matmul ${side}^3 NN`,
  form: 'nn',
  m: side,
  k: side,
  n: side,
})

/** Cubes, and the five products of the MLP step. */
export const matmulTasks: readonly MatmulTask[] = [
  ...[256, 512, 1024, 2048, 4096].map(cube),
  { name: 'matmul h = x W1ᵀ, NT 64x784x256', form: 'nt', m: 64, k: 784, n: 256 },
  { name: 'matmul dW1 = dhᵀ x, TN 256x64x784', form: 'tn', m: 256, k: 64, n: 784 },
  { name: 'matmul logits = h W2ᵀ, NT 64x256x10', form: 'nt', m: 64, k: 256, n: 10 },
  { name: 'matmul dW2 = dlogitsᵀ h, TN 10x64x256', form: 'tn', m: 10, k: 64, n: 256 },
  { name: 'matmul dh = dlogits W2, NN 64x10x256', form: 'nn', m: 64, k: 10, n: 256 },
]

/** A software adapter would take seconds for one product. */
export const needsGpu = ({ m }: MatmulTask): boolean => m > 1024

export const isCube = ({ m, k, n }: MatmulTask): boolean => m === k && k === n
