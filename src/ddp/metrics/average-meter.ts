import { numberFormat } from '../../util/number-format.ts'

/** What `AverageMeter.summary` tells: nothing, the average, the sum or the count. */
export type SummaryType = 'none' | 'average' | 'sum' | 'count'

const summaryFormat = numberFormat(':.3f')

/**
 * A value that is told again and again, and its average: the meter of PyTorch's ImageNet example.
 *
 * `fmt` writes the value and the average, as Python's format specifications: `:6.2f`, `:.4e`; default `:f`.
 * errors: `config.invalid` for a format that is none.
 */
export class AverageMeter {
  readonly name: string
  readonly fmt: string
  readonly summaryType: SummaryType
  /** The newest value. */
  val = 0
  avg = 0
  sum = 0
  count = 0
  readonly #format: (value: number) => string

  constructor(name: string, fmt = ':f', summaryType: SummaryType = 'average') {
    this.name = name
    this.fmt = fmt
    this.summaryType = summaryType
    this.#format = numberFormat(fmt)
  }

  reset(): void {
    this.val = 0
    this.avg = 0
    this.sum = 0
    this.count = 0
  }

  /** Takes in a value that is the mean of `n`: a batch's loss and its rows. */
  update(val: number, n = 1): void {
    this.val = val
    this.sum += val * n
    this.count += n
    this.avg = this.sum / this.count
  }

  /** `Loss 2.3021e+00 (2.3054e+00)`: the newest value and the average. */
  toString(): string {
    return `${this.name} ${this.#format(this.val)} (${this.#format(this.avg)})`
  }

  /** `Loss 2.305`: what `summaryType` says, with three digits. */
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
