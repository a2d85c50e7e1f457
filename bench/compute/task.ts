/** The training step that every library is timed on, and the library's side of it. */

/** 784-256-10 with ReLU, mean cross entropy, Adam. */
export const layers = { inputs: 784, hidden: 256, classes: 10 } as const
export const batchSize = 64
/** As torch.optim.Adam has it: ours is AdamW without weight decay, because TensorFlow.js has Adam alone. */
export const adam = { lr: 1e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8 } as const

/** Weights as torch.nn.Linear keeps them: [out, in]. */
export interface Weights {
  w1: Float32Array<ArrayBuffer>
  b1: Float32Array<ArrayBuffer>
  w2: Float32Array<ArrayBuffer>
  b2: Float32Array<ArrayBuffer>
}

/** One batch, with labels both ways: each library takes the form that suits it, made beforehand. */
export interface Batch {
  /** shape: [64, 784] */
  pixels: Float32Array<ArrayBuffer>
  labels: Int32Array<ArrayBuffer>
  /** shape: [64, 10] */
  oneHot: Float32Array<ArrayBuffer>
}

/** One library with a model of its own. */
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

/** shape: [rows, cols] -> [cols, rows] */
export function transposed(
  values: Float32Array,
  rows: number,
  cols: number,
): Float32Array<ArrayBuffer> {
  const result = new Float32Array(rows * cols)
  for (let r = 0; r < rows; r++)
    for (let c = 0; c < cols; c++) result[c * rows + r] = values[r * cols + c]
  return result
}

/** `c[m, n]` from a and b, read as the form says: nn a[m,k] b[k,n]; nt a[m,k] b[n,k]; tn a[k,m] b[k,n]. */
export interface MatmulTask {
  name: string
  form: 'nn' | 'nt' | 'tn'
  m: number
  k: number
  n: number
}

export interface Matmul {
  /** Does it `times` times over and resolves when the last result is there. */
  run(times: number): Promise<void>
  result(): Promise<Float32Array>
  dispose(): void
}

/** A 512-cube, and the five products of the MLP step. */
export const matmulTasks: readonly MatmulTask[] = [
  { name: 'matmul 512^3 NN', form: 'nn', m: 512, k: 512, n: 512 },
  { name: 'matmul h = x W1ᵀ, NT 64x784x256', form: 'nt', m: 64, k: 784, n: 256 },
  { name: 'matmul dW1 = dhᵀ x, TN 256x64x784', form: 'tn', m: 256, k: 64, n: 784 },
  { name: 'matmul logits = h W2ᵀ, NT 64x256x10', form: 'nt', m: 64, k: 256, n: 10 },
  { name: 'matmul dW2 = dlogitsᵀ h, TN 10x64x256', form: 'tn', m: 10, k: 64, n: 256 },
  { name: 'matmul dh = dlogits W2, NN 64x10x256', form: 'nn', m: 64, k: 10, n: 256 },
]

export const flops = ({ m, k, n }: MatmulTask): number => 2 * m * k * n
