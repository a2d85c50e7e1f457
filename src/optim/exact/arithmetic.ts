/**
 * The updates as formulas, which numbers compute (host-update.ts) and which are assembled to vector instructions (vector-code.ts): the same
 * operations in the same order, each a float32 operation that is rounded once.
 */

/** Operations of float32 numbers, or of what stands for them. */
export interface Float32Arithmetic<T> {
  add(a: T, b: T): T
  subtract(a: T, b: T): T
  multiply(a: T, b: T): T
  divide(a: T, b: T): T
  squareRoot(a: T): T
}

/** What an AdamW step multiplies by, in the order in which functions take it. */
export const adamFactors = [
  /** Of the parameter: 1 - lr weightDecay. */
  'decay',
  'beta1',
  'oneMinusBeta1',
  'beta2',
  'oneMinusBeta2',
  'stepSize',
  'eps',
] as const
export type AdamFactors<T = number> = Readonly<Record<(typeof adamFactors)[number], T>>

/** What an SGD step multiplies by. */
export const sgdFactors = ['momentum', 'lr'] as const
export type SgdFactors<T = number> = Readonly<Record<(typeof sgdFactors)[number], T>>

/** The next m and v, and the next parameter: decay param - stepSize m / (sqrt(v) + eps), as kernels/adam has it. source: PyTorch's AdamW. */
export function adam<T>(
  { add, subtract, multiply, divide, squareRoot }: Float32Arithmetic<T>,
  param: T,
  grad: T,
  m: T,
  v: T,
  { decay, beta1, oneMinusBeta1, beta2, oneMinusBeta2, stepSize, eps }: AdamFactors<T>,
): { param: T; m: T; v: T } {
  const first = add(multiply(beta1, m), multiply(oneMinusBeta1, grad))
  const second = add(multiply(beta2, v), multiply(oneMinusBeta2, multiply(grad, grad)))
  const move = divide(multiply(stepSize, first), add(squareRoot(second), eps))
  return { param: subtract(multiply(decay, param), move), m: first, v: second }
}

/** The next buffer, momentum buffer + grad, and the next parameter, param - lr buffer. source: PyTorch's SGD. */
export function sgd<T>(
  { add, subtract, multiply }: Float32Arithmetic<T>,
  param: T,
  grad: T,
  buffer: T,
  { momentum, lr }: SgdFactors<T>,
): { param: T; buffer: T } {
  const next = add(multiply(momentum, buffer), grad)
  return { param: subtract(param, multiply(lr, next)), buffer: next }
}

/** A sum as the mean gradient. `sum`: rounded to float32. */
export const meanOf = <T>(
  { multiply, divide }: Float32Arithmetic<T>,
  sum: T,
  scale: T,
  count: T,
): T => divide(multiply(sum, scale), count)
