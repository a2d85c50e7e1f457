export interface AdamwStep {
  readonly lr: number
  readonly biasCorrection1: number
  readonly biasCorrection2: number
  readonly beta1: number
  readonly beta2: number
  readonly eps: number
  readonly weightDecay: number
  readonly start: number
  readonly length: number
}

/** One AdamW step in f64 on elements start .. start + length, in place. */
export function adamwReference(
  param: Float64Array,
  grad: Float64Array,
  m: Float64Array,
  v: Float64Array,
  step: AdamwStep,
): void {
  for (let i = step.start; i < step.start + step.length; i++) {
    m[i] = step.beta1 * m[i] + (1 - step.beta1) * grad[i]
    v[i] = step.beta2 * v[i] + (1 - step.beta2) * grad[i] * grad[i]
    const denominator = Math.sqrt(v[i]) / Math.sqrt(step.biasCorrection2) + step.eps
    param[i] *= 1 - step.lr * step.weightDecay
    param[i] -= ((step.lr / step.biasCorrection1) * m[i]) / denominator
  }
}
