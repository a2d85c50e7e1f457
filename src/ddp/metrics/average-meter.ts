import { numberFormat } from '../../util/number-format.ts'
import { checkArgument, checkChoice, checkText, isNotNegative } from '../../util/options.ts'

/** The figure that `AverageMeter.summary` shows: nothing, the average, the sum or the count. */
export type SummaryType = 'none' | 'average' | 'sum' | 'count'

const summaryFormat = numberFormat(':.3f')

/**
 * Keeps the newest value and the average of a quantity: the meter of PyTorch's ImageNet example.
 *
 * `fmt` formats both, as a Python format specification: `:6.2f`, `:.4e`; default `:f`.
 * errors: `config.invalid` for an invalid format.
 */
export class AverageMeter {
  readonly name: string
  readonly fmt: string
  readonly summaryType: SummaryType
  #val = 0
  #sum = 0
  #count = 0
  readonly #format: (value: number) => string

  constructor(name: string, fmt = ':f', summaryType: SummaryType = 'average') {
    checkText('AverageMeter', 'name', name)
    checkText('AverageMeter', 'fmt', fmt)
    checkChoice('AverageMeter', 'summaryType', summaryType, ['none', 'average', 'sum', 'count'])
    this.name = name
    this.fmt = fmt
    this.summaryType = summaryType
    this.#format = numberFormat(fmt, 'AverageMeter', 'fmt')
  }

  /** Newest value. */
  get val(): number {
    return this.#val
  }

  get avg(): number {
    return this.#count > 0 ? this.#sum / this.#count : 0
  }

  get sum(): number {
    return this.#sum
  }

  get count(): number {
    return this.#count
  }

  reset(): void {
    this.#val = 0
    this.#sum = 0
    this.#count = 0
  }

  /**
   * Adds a value that is the mean of `n` values, such as a batch's loss and its number of rows. errors: a TypeError for what is no number, and for
   * an `n` below 0.
   */
  update(val: number, n = 1): void {
    const isCounted = typeof n === 'number' && isNotNegative(n)
    checkArgument('AverageMeter.update', 'val', val, typeof val === 'number', 'a number')
    checkArgument('AverageMeter.update', 'n', n, isCounted, 'a number of at least 0')
    this.#val = val
    this.#sum += val * n
    this.#count += n
  }

  /** Returns the newest value and the average: `Loss 2.3021e+00 (2.3054e+00)`. */
  toString(): string {
    return `${this.name} ${this.#format(this.val)} (${this.#format(this.avg)})`
  }

  /** Returns what `summaryType` selects, with three digits: `Loss 2.305`. */
  summary(): string {
    switch (this.summaryType) {
      case 'none':
        return ''
      case 'average':
        return `${this.name} ${summaryFormat(this.avg)}`
      case 'sum':
        return `${this.name} ${summaryFormat(this.sum)}`
      case 'count':
        return `${this.name} ${summaryFormat(this.count)}`
    }
  }
}
