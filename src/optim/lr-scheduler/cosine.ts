import { checkNumber, checkOptions, isCount, isNotNegative } from '../../util/options.ts'
import { checkRequired, LRScheduler, type Schedulable } from './scheduler.ts'

/** Anneals each group's learning rate down to `etaMin` along half a cosine over `tMax` epochs, and up again. source: arXiv 1608.03983. */
export class CosineAnnealingLR extends LRScheduler {
  protected tMax: number
  protected etaMin: number

  constructor(optimizer: Schedulable, tMax: number, options: { etaMin?: number } = {}) {
    super(optimizer)
    const isEpochs = Number.isFinite(tMax) && tMax >= 1
    checkRequired('CosineAnnealingLR', 'tMax', tMax, isEpochs, 'a number from 1 up')
    const { etaMin = 0 } = checkOptions('CosineAnnealingLR', options, { etaMin: true })
    checkNumber('CosineAnnealingLR', 'etaMin', etaMin, isNotNegative, 'at least 0')
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

  constructor(
    optimizer: Schedulable,
    t0: number,
    options: { tMult?: number; etaMin?: number } = {},
  ) {
    super(optimizer)
    const name = 'CosineAnnealingWarmRestarts'
    checkRequired(name, 't0', t0, isCount(t0), 'a whole number above 0')
    const known = { tMult: true, etaMin: true } as const
    const { tMult = 1, etaMin = 0 } = checkOptions(name, options, known)
    checkNumber(name, 'tMult', tMult, isCount, 'a whole number above 0')
    checkNumber(name, 'etaMin', etaMin, isNotNegative, 'at least 0')
    this.t0 = t0
    this.tI = t0
    this.tMult = tMult
    this.etaMin = etaMin
    this.initialStep()
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
