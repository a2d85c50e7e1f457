import { checkOptions, isCount, isNotNegative } from '../../util/options.ts'
import { LRScheduler, type Schedulable, type StateFields } from './scheduler.ts'

/** Anneals each group's learning rate down to `etaMin` along half a cosine over `tMax` epochs, and up again. source: arXiv 1608.03983. */
export class CosineAnnealingLR extends LRScheduler {
  protected tMax: number
  protected etaMin: number

  constructor(optimizer: Schedulable, tMax: number, options: { etaMin?: number } = {}) {
    super(optimizer)
    const { etaMin = 0 } = checkOptions('CosineAnnealingLR', options, { etaMin: true })
    this.tMax = tMax
    this.etaMin = etaMin
    this.initialStep()
  }

  protected rates(): number[] {
    const { lastEpoch, tMax, etaMin } = this
    if (lastEpoch === 0) return this.present()
    if (this.stepCount === 1 && lastEpoch > 0) return this.closedForm()
    if ((lastEpoch - 1 - tMax) % (2 * tMax) === 0) {
      const rise = (1 - Math.cos(Math.PI / tMax)) / 2
      return this.present().map((lr, i) => lr + (this.baseLrs[i] - etaMin) * rise)
    }
    const ratio =
      (1 + Math.cos((Math.PI * lastEpoch) / tMax)) /
      (1 + Math.cos((Math.PI * (lastEpoch - 1)) / tMax))
    return this.present().map((lr) => ratio * (lr - etaMin) + etaMin)
  }

  protected override closedForm(): number[] {
    const share = (1 + Math.cos((Math.PI * this.lastEpoch) / this.tMax)) / 2
    return this.baseLrs.map((base) => this.etaMin + (base - this.etaMin) * share)
  }

  protected override fields(): StateFields {
    const isValid = (epochs: number) => Number.isFinite(epochs) && epochs >= 1
    return {
      ...super.fields(),
      tMax: { key: 'T_max', isValid, expected: 'a number from 1 up', isArgument: true },
      etaMin: { key: 'eta_min', isValid: isNotNegative, expected: 'at least 0' },
    }
  }
}

/**
 * Anneals along half a cosine down to `etaMin` repeatedly: first over `t0` epochs, each time `tMult` times as long as before.
 *
 * `step(epoch)` accepts fractional epochs. source: arXiv 1608.03983.
 */
export class CosineAnnealingWarmRestarts extends LRScheduler {
  protected t0: number
  protected tI: number
  protected tMult: number
  protected etaMin: number
  protected tCur = -1

  constructor(
    optimizer: Schedulable,
    t0: number,
    options: { tMult?: number; etaMin?: number } = {},
  ) {
    super(optimizer)
    const known = { tMult: true, etaMin: true } as const
    const { tMult = 1, etaMin = 0 } = checkOptions('CosineAnnealingWarmRestarts', options, known)
    this.t0 = t0
    this.tI = t0
    this.tMult = tMult
    this.etaMin = etaMin
    this.initialStep()
  }

  protected override get hasFractions(): boolean {
    return true
  }

  protected override advance(epoch?: number): number[] {
    if (epoch === undefined && this.lastEpoch >= 0) {
      this.lastEpoch++
      this.tCur++
      if (this.tCur >= this.tI) {
        this.tCur -= this.tI
        this.tI *= this.tMult
      }
    } else {
      this.#goTo(epoch ?? 0)
    }
    return this.rates()
  }

  protected rates(): number[] {
    const share = (1 + Math.cos((Math.PI * this.tCur) / this.tI)) / 2
    return this.baseLrs.map((base) => this.etaMin + (base - this.etaMin) * share)
  }

  protected override fields(): StateFields {
    const count = { isValid: isCount, expected: 'a whole number above 0' }
    const isCurrent = (epoch: number) => Number.isFinite(epoch) && epoch >= -1
    return {
      ...super.fields(),
      t0: { key: 'T_0', ...count, isArgument: true },
      tI: { key: 'T_i', ...count },
      tMult: { key: 'T_mult', ...count },
      etaMin: { key: 'eta_min', isValid: isNotNegative, expected: 'at least 0' },
      tCur: { key: 'T_cur', isValid: isCurrent, expected: 'a number from -1 up' },
    }
  }

  #goTo(epoch: number): void {
    const { t0, tMult } = this
    this.lastEpoch = Math.floor(epoch)
    if (epoch < t0 || tMult === 1) {
      this.tI = t0
      this.tCur = epoch < t0 ? epoch : epoch % t0
      return
    }
    const cycle = Math.floor(Math.log((epoch / t0) * (tMult - 1) + 1) / Math.log(tMult))
    this.tCur = epoch - (t0 * (tMult ** cycle - 1)) / (tMult - 1)
    this.tI = t0 * tMult ** cycle
  }
}
