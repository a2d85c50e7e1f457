import type { GradScalerState } from '../../optim/grad-scaler.ts'
import { TabringError } from '../../util/errors.ts'

/** PyTorch's defaults, as `GradScaler` has them. */
const start = 16
const growthInterval = 2000
/** As kernels/grad-scaler has it. */
const largest = 126

/**
 * The loss scale of a float16 run, on the host, as `GradScaler` has it on the device: halved after a step whose gradients are not finite,
 * doubled after 2000 steps without one. It is a power of two, so scaling and unscaling round nothing.
 *
 * Its state dict is that of `GradScaler`.
 */
export class LossScale {
  /** Of two. */
  #exponent = start
  /** Steps since it changed. */
  #steps = 0
  readonly #batchBits: number

  /** `rows`: of a global batch. */
  constructor(rows: number) {
    this.#batchBits = 32 - Math.clz32(rows - 1)
  }

  /** Scale of the gradients, as an exponent of two. They are sums over the batch, where a plain run's are means. */
  get exponent(): number {
    return this.#exponent - this.#batchBits
  }

  /** State that the next steps depend on. */
  get state(): Float32Array<ArrayBuffer> {
    return Float32Array.of(2 ** this.#exponent, this.#steps)
  }

  /** Notes a step whose gradients were finite. */
  keep(): void {
    if (++this.#steps < growthInterval) return
    this.#steps = 0
    this.#exponent = Math.min(largest, this.#exponent + 1)
  }

  /** Halves the scale after a step whose gradients were not finite; false, and nothing, where it is 1: then it is not the scale's fault. */
  shrink(): boolean {
    if (this.#exponent <= 0) return false
    this.#steps = 0
    this.#exponent--
    return true
  }

  async stateDict(): Promise<GradScalerState> {
    const [scale, tracker] = this.state
    return {
      scale,
      growth_factor: 2,
      backoff_factor: 0.5,
      growth_interval: growthInterval,
      _growth_tracker: tracker,
    }
  }

  /** errors: `data.malformed` for a scale that is no power of two. */
  loadStateDict({ scale, _growth_tracker: tracker }: GradScalerState): void {
    const exponent = Math.round(Math.log2(scale))
    const isPower = Number.isInteger(exponent) && 2 ** exponent === scale
    if (!isPower || !Number.isInteger(tracker))
      throw new TabringError(
        'data.malformed',
        `loadStateDict: expected a loss scale that is a power of two, got ${scale} after ${tracker} steps. Load the state of a built-in run.`,
      )
    this.#exponent = exponent
    this.#steps = tracker
  }
}
