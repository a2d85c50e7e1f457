/** How much is done a second, over the last few seconds. */
export class Rate {
  readonly #steps: { readonly atMs: number; readonly amount: number }[] = []
  constructor(private readonly windowMs = 3000) {}

  /** Notes that a step has ended and how much it did, itself for one; units: `nowMs` on any clock. */
  step(nowMs: number, amount = 1): void {
    this.#steps.push({ atMs: nowMs, amount })
    while (this.#steps.length > 2 && nowMs - this.#steps[0].atMs > this.windowMs)
      this.#steps.shift()
  }

  /** NaN before the second step. */
  get perSec(): number {
    const [first, ...others] = this.#steps
    const newest = others.at(-1)
    if (!newest) return Number.NaN
    const done = others.reduce((sum, { amount }) => sum + amount, 0)
    return (1000 * done) / Math.max(1e-3, newest.atMs - first.atMs)
  }
}
