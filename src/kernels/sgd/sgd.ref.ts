export interface SgdStep {
  readonly lr: number
  readonly gradScale: number
  readonly momentum: number
  readonly weightDecay: number
  readonly nesterov: boolean
  readonly start: number
  readonly length: number
}

/** One SGD step in f64 on elements start .. start + length, in place; `buffer` is the momentum, if there is any. */
export function sgdReference(
  param: Float64Array,
  grad: Float64Array,
  buffer: Float64Array | undefined,
  step: SgdStep,
): void {
  for (let i = step.start; i < step.start + step.length; i++) {
    let d = grad[i] + step.weightDecay * param[i]
    if (buffer) {
      buffer[i] = step.momentum * buffer[i] + step.gradScale * d
      d = step.nesterov ? d + step.momentum * buffer[i] : buffer[i]
    }
    param[i] -= step.lr * d
  }
}
