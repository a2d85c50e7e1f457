/** By default: what ends each tab soon is no accident. */
export const fewRestarts = 3

/** How often what was lost is opened again: a tab that joins the others, or all tabs. One budget for both. */
export class Restarts {
  #used = 0
  readonly #max: number

  constructor(max = fewRestarts) {
    this.#max = max
  }

  get used(): number {
    return this.#used
  }

  /** Takes one and returns its words, `restart 1 of 3`; null when none is left. */
  take(): string | null {
    return this.#used < this.#max ? `restart ${++this.#used} of ${this.#max}` : null
  }
}

/**
 * Tells whether a run would fail in the same way again, by its error's code: its settings or data are wrong, or with its samples and seed the loss is not a number. A
 * device that does not suit it shows before the first step.
 */
export const failsAgain = (code: string, hasTrained: boolean): boolean =>
  /^(train\.nan|(config|shape)\..*|data\.(malformed|missing|checksum))$/.test(code) ||
  (!hasTrained && /^gpu\.(limit|unavailable)$/.test(code))
