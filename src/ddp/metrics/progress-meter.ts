import { isRecord } from '../../util/kind-of.ts'
import { checkArgument, checkList, checkText } from '../../util/options.ts'

/** A meter that `ProgressMeter` can show, such as `AverageMeter`. */
export interface Meter {
  toString(): string
  summary(): string
}

/** errors: a TypeError for what counts no batches. */
const checkBatches = (where: string, name: string, value: number): void =>
  checkArgument(where, name, value, Number.isSafeInteger(value) && value >= 0, 'a whole number')

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
    const isMeter = (meter: Meter) => isRecord(meter) && typeof meter.summary === 'function'
    checkBatches('ProgressMeter', 'numBatches', numBatches)
    checkList('ProgressMeter', 'meters', meters, isMeter, 'meters')
    checkText('ProgressMeter', 'prefix', prefix)
    checkArgument('ProgressMeter', 'print', print, typeof print === 'function', 'a function')
    this.numBatches = numBatches
    this.meters = meters
    this.prefix = prefix
    this.#print = print
  }

  /** Prints `Epoch: [0][ 10/938]` and every meter, separated by tabs. */
  display(batch: number): void {
    checkBatches('ProgressMeter.display', 'batch', batch)
    const all = String(this.numBatches)
    const at = `${this.prefix}[${String(batch).padStart(all.length)}/${all}]`
    this.#print([at, ...this.meters.map(String)].join('\t'))
  }

  /** Prints ` * ` and the summary of every meter. */
  displaySummary(): void {
    this.#print([' *', ...this.meters.map((meter) => meter.summary())].join(' '))
  }
}
