import { adam, type Batch, batchSize, layers, type MatmulTask, type Weights } from './task.ts'

/** The truth that every library is held to before it is timed: plain loops in double precision, no library. */

/** The losses of `batches`, one step each, from `initial`. */
export function oracleLosses(initial: Weights, batches: readonly Batch[]): number[] {
  const { inputs, hidden, classes } = layers
  const parameters = [initial.w1, initial.b1, initial.w2, initial.b2].map((values) => ({
    value: Float64Array.from(values),
    gradient: new Float64Array(values.length),
    first: new Float64Array(values.length),
    second: new Float64Array(values.length),
  }))
  const [w1, b1, w2, b2] = parameters
  return batches.map(({ pixels, labels }, index) => {
    for (const { gradient } of parameters) gradient.fill(0)
    let loss = 0
    const h = new Float64Array(hidden)
    const logits = new Float64Array(classes)
    const dh = new Float64Array(hidden)
    for (let row = 0; row < batchSize; row++) {
      const x = pixels.subarray(row * inputs, (row + 1) * inputs)
      for (let j = 0; j < hidden; j++) {
        let sum = b1.value[j]
        for (let i = 0; i < inputs; i++) sum += x[i] * w1.value[j * inputs + i]
        h[j] = Math.max(0, sum)
      }
      for (let c = 0; c < classes; c++) {
        let sum = b2.value[c]
        for (let j = 0; j < hidden; j++) sum += h[j] * w2.value[c * hidden + j]
        logits[c] = sum
      }
      const largest = Math.max(...logits)
      const total = logits.reduce((sum, logit) => sum + Math.exp(logit - largest), 0)
      loss += (largest + Math.log(total) - logits[labels[row]]) / batchSize
      dh.fill(0)
      for (let c = 0; c < classes; c++) {
        const probability = Math.exp(logits[c] - largest) / total
        const d = (probability - (labels[row] === c ? 1 : 0)) / batchSize
        b2.gradient[c] += d
        for (let j = 0; j < hidden; j++) {
          w2.gradient[c * hidden + j] += d * h[j]
          dh[j] += d * w2.value[c * hidden + j]
        }
      }
      for (let j = 0; j < hidden; j++) {
        if (h[j] <= 0) continue
        b1.gradient[j] += dh[j]
        for (let i = 0; i < inputs; i++) w1.gradient[j * inputs + i] += dh[j] * x[i]
      }
    }
    const step = index + 1
    for (const { value, gradient, first, second } of parameters) {
      for (let i = 0; i < value.length; i++) {
        first[i] = adam.beta1 * first[i] + (1 - adam.beta1) * gradient[i]
        second[i] = adam.beta2 * second[i] + (1 - adam.beta2) * gradient[i] ** 2
        const mean = first[i] / (1 - adam.beta1 ** step)
        const variance = second[i] / (1 - adam.beta2 ** step)
        value[i] -= (adam.lr * mean) / (Math.sqrt(variance) + adam.eps)
      }
    }
    return loss
  })
}

/** Largest relative difference between two trajectories. */
export const worstDifference = (losses: readonly number[], expected: readonly number[]): number =>
  Math.max(...losses.map((loss, step) => Math.abs(loss / expected[step] - 1)))

/** One element of the product. */
export function matmulElement(
  { form, m, k, n }: MatmulTask,
  a: Float32Array,
  b: Float32Array,
  row: number,
  col: number,
): number {
  let sum = 0
  for (let i = 0; i < k; i++) {
    const left = form === 'tn' ? a[i * m + row] : a[row * k + i]
    const right = form === 'nt' ? b[col * k + i] : b[i * n + col]
    sum += left * right
  }
  return sum
}
