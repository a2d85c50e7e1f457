/**
 * Updates on the host in exactly specified arithmetic: each operation in float64 of float32 operands, rounded to float32 at once.
 *
 * For +, -, *, / and the square root that is the float32 operation itself, so any engine and any machine gives the same bits. All arrays are
 * float32 and change in place.
 */

import { shiftOf } from '../../kernels/encode/encode.ts'

type Floats = Float32Array<ArrayBuffer>

const { fround } = Math

/** What an AdamW step multiplies by; each a float32. */
export interface AdamFactors {
  /** Of the parameter: 1 - lr weightDecay. */
  readonly decay: number
  readonly beta1: number
  readonly oneMinusBeta1: number
  readonly beta2: number
  readonly oneMinusBeta2: number
  readonly stepSize: number
  readonly eps: number
}

/** param <- decay param - stepSize m / (sqrt(v) + eps), as kernels/adam has it. shape: [n] each. source: PyTorch's AdamW. */
export function adamOnHost(
  param: Floats,
  grad: Floats,
  m: Floats,
  v: Floats,
  { decay, beta1, oneMinusBeta1, beta2, oneMinusBeta2, stepSize, eps }: AdamFactors,
): void {
  for (let i = 0; i < param.length; i++) {
    const g = grad[i]
    const first = fround(fround(beta1 * m[i]) + fround(oneMinusBeta1 * g))
    const second = fround(fround(beta2 * v[i]) + fround(oneMinusBeta2 * fround(g * g)))
    m[i] = first
    v[i] = second
    const move = fround(fround(stepSize * first) / fround(fround(Math.sqrt(second)) + eps))
    param[i] = fround(decay * param[i]) - move
  }
}

/** buffer <- momentum buffer + grad, param <- param - lr buffer. shape: [n] each. source: PyTorch's SGD. */
export function sgdOnHost(
  param: Floats,
  grad: Floats,
  buffer: Floats,
  { momentum, lr }: { readonly momentum: number; readonly lr: number },
): void {
  for (let i = 0; i < param.length; i++) {
    const next = fround(fround(momentum * buffer[i]) + grad[i])
    buffer[i] = next
    param[i] -= fround(lr * next)
  }
}

/**
 * A sum of whole numbers as the mean gradient: sum 2^-k / count, rounded after each of the three. `into` and `sums` [n].
 *
 * k: of the block of each element; `blockElements` of them share one.
 */
export function decode(
  sums: Int32Array,
  exponents: Int32Array,
  blockElements: number,
  count: number,
  into: Floats,
): void {
  for (let block = 0; block < exponents.length; block++) {
    const scale = 2 ** -shiftOf(exponents[block])
    const end = Math.min(sums.length, (block + 1) * blockElements)
    for (let i = block * blockElements; i < end; i++)
      into[i] = fround(fround(sums[i]) * scale) / count
  }
}
