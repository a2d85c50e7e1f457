import { checkNumber, checkOptions, isNotNegative } from '../../util/options.ts'
import { checkOption, LRScheduler, type Schedulable } from './scheduler.ts'

/** Anneals each group's learning rate down to `etaMin` along half a cosine over `tMax` epochs, and up again. source: arXiv 1608.03983. */
export class CosineAnnealingLR extends LRScheduler {
  protected tMax: number
  protected etaMin: number

  constructor(optimizer: Schedulable, options: { tMax: number; etaMin?: number }) {
    super(optimizer)
    const known = { tMax: true, etaMin: true } as const
    const { tMax, etaMin = 0 } = checkOptions('CosineAnnealingLR', options, known)
    checkOption('CosineAnnealingLR', 'tMax', tMax, tMax >= 1, 'at least 1')
    checkNumber('CosineAnnealingLR', 'etaMin', etaMin, Number.isFinite, 'a number')
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

  protected override fields() {
    return { ...super.fields(), tMax: 'T_max', etaMin: 'eta_min' }
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

  constructor(optimizer: Schedulable, options: { t0: number; tMult?: number; etaMin?: number }) {
    super(optimizer)
    const known = { t0: true, tMult: true, etaMin: true } as const
    const {
      t0,
      tMult = 1,
      etaMin = 0,
    } = checkOptions('CosineAnnealingWarmRestarts', options, known)
    const isWhole = (value: number) => Number.isInteger(value) && value >= 1
    checkOption(
      'CosineAnnealingWarmRestarts',
      't0',
      t0,
      isWhole(t0),
      'a whole number of at least 1',
    )
    checkOption(
      'CosineAnnealingWarmRestarts',
      'tMult',
      tMult,
      isWhole(tMult),
      'a whole number of at least 1',
    )
    checkNumber('CosineAnnealingWarmRestarts', 'etaMin', etaMin, Number.isFinite, 'a number')
    this.t0 = t0
    this.tI = t0
    this.tMult = tMult
    this.etaMin = etaMin
    this.initialStep()
  }

  override step(epoch?: number): void {
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
    this.set(this.rates())
  }

  protected rates(): number[] {
    const share = (1 + Math.cos((Math.PI * this.tCur) / this.tI)) / 2
    return this.baseLrs.map((base) => this.etaMin + (base - this.etaMin) * share)
  }

  protected override fields() {
    return {
      ...super.fields(),
      t0: 'T_0',
      tI: 'T_i',
      tMult: 'T_mult',
      etaMin: 'eta_min',
      tCur: 'T_cur',
    }
  }

  #goTo(epoch: number): void {
    const { t0, tMult } = this
    checkNumber('CosineAnnealingWarmRestarts', 'epoch', epoch, isNotNegative, 'at least 0')
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
