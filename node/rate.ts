/** Samples a second of all ranks together, over the last few seconds of rank 0's steps. */
export class Rate {
  readonly #steps: number[] = []
  constructor(
    private readonly batchSize: number,
    private readonly windowMs = 3000,
  ) {}

  /** Notes that one step has ended; units: `nowMs` on any clock. */
  step(nowMs: number): void {
    this.#steps.push(nowMs)
    while (this.#steps.length > 2 && nowMs - this.#steps[0] > this.windowMs) this.#steps.shift()
  }

  /** units: samples a second; NaN before the second step. */
  get samplesPerSec(): number {
    const count = this.#steps.length - 1
    if (count < 1) return Number.NaN
    return (1000 * this.batchSize * count) / Math.max(1e-3, this.#steps[count] - this.#steps[0])
  }
}
