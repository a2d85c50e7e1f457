/** A meter that `ProgressMeter` can show, such as `AverageMeter`. */
export interface Meter {
  toString(): string
  summary(): string
}

/**
 * Prints the progress of an epoch: that of PyTorch's ImageNet example.
 *
 * `print` gets each line. Default: the console.
 */
export class ProgressMeter {
  readonly numBatches: number
  readonly meters: readonly Meter[]
  readonly prefix: string
  readonly #print: (line: string) => void

  constructor(
    numBatches: number,
    meters: readonly Meter[],
    prefix = '',
    print: (line: string) => void = (line) => console.log(line),
  ) {
    this.numBatches = numBatches
    this.meters = meters
    this.prefix = prefix
    this.#print = print
  }

  /** Prints `Epoch: [0][ 10/938]` and every meter, separated by tabs. */
  display(batch: number): void {
    const all = String(this.numBatches)
    const at = `${this.prefix}[${String(batch).padStart(all.length)}/${all}]`
    this.#print([at, ...this.meters.map(String)].join('\t'))
  }

  /** Prints ` * ` and the summary of every meter. */
  displaySummary(): void {
    this.#print([' *', ...this.meters.map((meter) => meter.summary())].join(' '))
  }
}
