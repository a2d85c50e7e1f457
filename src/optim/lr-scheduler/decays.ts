import { isRecord } from '../../util/kind-of.ts'
import { checkOptions, isCount, isNoNan, isNotNegative, isShare } from '../../util/options.ts'
import {
  checkOption,
  checkRequired,
  LRScheduler,
  perGroup,
  type Schedulable,
  type StateFields,
} from './scheduler.ts'

const anyGamma = { key: 'gamma', isValid: Number.isFinite, expected: 'a number' }

const positiveShare = {
  isValid: (factor: number) => isShare(factor) && factor > 0,
  expected: 'above 0 and at most 1',
}

/** Sets each group's learning rate to its initial one times `lambda(epoch)`; takes one function, or one per group. */
export class LambdaLR extends LRScheduler {
  readonly #lambdas: ((epoch: number) => number)[]

  constructor(
    optimizer: Schedulable,
    lambda: ((epoch: number) => number) | readonly ((epoch: number) => number)[],
  ) {
    super(optimizer)
    const isFunction = (one: unknown) => typeof one === 'function'
    const { length } = optimizer.paramGroups
    const expected = 'a function of the epoch'
    this.#lambdas = perGroup('LambdaLR', 'lambda', lambda, length, isFunction, expected)
    this.initialStep()
  }

  protected rates(): number[] {
    return this.baseLrs.map((base, i) => {
      const factor = this.#lambdas[i](this.lastEpoch)
      const isFactor = Number.isFinite(factor)
      checkOption('LambdaLR', 'what lambda returns', factor, isFactor, 'a number')
      return base * factor
    })
  }
}

/** Multiplies the learning rates by `gamma` every `stepSize` epochs. */
export class StepLR extends LRScheduler {
  protected stepSize: number
  protected gamma: number

  constructor(optimizer: Schedulable, stepSize: number, options: { gamma?: number } = {}) {
    super(optimizer)
    const { gamma = 0.1 } = checkOptions('StepLR', options, { gamma: true })
    this.stepSize = stepSize
    this.gamma = gamma
    this.initialStep()
  }

  protected rates(): number[] {
    const isDue = this.lastEpoch !== 0 && this.lastEpoch % this.stepSize === 0
    return isDue ? this.scaled(this.gamma) : this.present()
  }

  protected override closedForm(): number[] {
    const factor = this.gamma ** Math.floor(this.lastEpoch / this.stepSize)
    return this.baseLrs.map((base) => base * factor)
  }

  protected override fields(): StateFields {
    const stepSize = { key: 'step_size', isValid: isCount, expected: 'a whole number above 0' }
    return { ...super.fields(), stepSize: { ...stepSize, isArgument: true }, gamma: anyGamma }
  }
}

/** Multiplies the learning rates by `gamma` at each milestone; a milestone given twice counts twice. */
export class MultiStepLR extends LRScheduler {
  /** How many times each milestone was given. */
  protected milestones: Record<number, number> = {}
  protected gamma: number

  constructor(
    optimizer: Schedulable,
    milestones: readonly number[],
    options: { gamma?: number } = {},
  ) {
    super(optimizer)
    const isList = Array.isArray(milestones) && [...milestones].every(isNotNegative)
    checkRequired('MultiStepLR', 'milestones', milestones, isList, 'a list of epochs')
    const { gamma = 0.1 } = checkOptions('MultiStepLR', options, { gamma: true })
    for (const epoch of milestones) this.milestones[epoch] = (this.milestones[epoch] ?? 0) + 1
    this.gamma = gamma
    this.initialStep()
  }

  protected rates(): number[] {
    const times = this.milestones[this.lastEpoch]
    return times ? this.scaled(this.gamma ** times) : this.present()
  }

  protected override closedForm(): number[] {
    const passed = Object.entries(this.milestones)
      .filter(([epoch]) => Number(epoch) <= this.lastEpoch)
      .reduce((sum, [, times]) => sum + times, 0)
    return this.baseLrs.map((base) => base * this.gamma ** passed)
  }

  protected override fields(): StateFields {
    const milestones = {
      key: 'milestones',
      isValid: (times: Record<string, number>) =>
        isRecord(times) &&
        Object.entries(times).every(
          ([epoch, count]) => epoch === `${+epoch}` && isNotNegative(+epoch) && isCount(count),
        ),
      expected: 'how many times each epoch counts',
    }
    return { ...super.fields(), milestones, gamma: anyGamma }
  }
}

/** Multiplies the learning rates by `gamma` every epoch. */
export class ExponentialLR extends LRScheduler {
  protected gamma: number

  constructor(optimizer: Schedulable, gamma: number) {
    super(optimizer)
    this.gamma = gamma
    this.initialStep()
  }

  protected rates(): number[] {
    return this.lastEpoch === 0 ? this.present() : this.scaled(this.gamma)
  }

  protected override closedForm(): number[] {
    return this.baseLrs.map((base) => base * this.gamma ** this.lastEpoch)
  }

  protected override fields(): StateFields {
    return { ...super.fields(), gamma: { ...anyGamma, isArgument: true } }
  }
}

/** Multiplies the learning rates by `factor` until epoch `totalIters`. */
export class ConstantLR extends LRScheduler {
  protected factor: number
  protected totalIters: number

  constructor(optimizer: Schedulable, options: { factor?: number; totalIters?: number } = {}) {
    super(optimizer)
    const known = { factor: true, totalIters: true } as const
    const { factor = 1 / 3, totalIters = 5 } = checkOptions('ConstantLR', options, known)
    this.factor = factor
    this.totalIters = totalIters
    this.initialStep()
  }

  protected rates(): number[] {
    if (this.lastEpoch === 0) return this.scaled(this.factor)
    return this.lastEpoch === this.totalIters ? this.scaled(1 / this.factor) : this.present()
  }

  protected override closedForm(): number[] {
    const isOver = this.lastEpoch >= this.totalIters ? 1 : 0
    return this.baseLrs.map((base) => base * (this.factor + isOver * (1 - this.factor)))
  }

  protected override fields(): StateFields {
    const isEpochs = (count: number) => isNoNan(count) && count >= 0
    return {
      ...super.fields(),
      factor: { key: 'factor', ...positiveShare },
      totalIters: { key: 'total_iters', isValid: isEpochs, expected: 'at least 0' },
    }
  }
}

/** Changes the factor of the learning rates linearly from `startFactor` to `endFactor` over `totalIters` epochs: a warm-up. */
export class LinearLR extends LRScheduler {
  protected startFactor: number
  protected endFactor: number
  protected totalIters: number

  constructor(
    optimizer: Schedulable,
    options: { startFactor?: number; endFactor?: number; totalIters?: number } = {},
  ) {
    super(optimizer)
    const known = { startFactor: true, endFactor: true, totalIters: true } as const
    const {
      startFactor = 1 / 3,
      endFactor = 1,
      totalIters = 5,
    } = checkOptions('LinearLR', options, known)
    this.startFactor = startFactor
    this.endFactor = endFactor
    this.totalIters = totalIters
    this.initialStep()
  }

  protected rates(): number[] {
    if (this.lastEpoch === 0) return this.scaled(this.startFactor)
    if (this.lastEpoch > this.totalIters) return this.present()
    const change = this.endFactor - this.startFactor
    const before = this.totalIters * this.startFactor + (this.lastEpoch - 1) * change
    // Below 0 by rounding alone, where it ends at 0.
    return this.scaled(Math.max(0, 1 + change / before))
  }

  protected override closedForm(): number[] {
    const share = Math.min(this.totalIters, this.lastEpoch) / this.totalIters
    const factor = this.startFactor + (this.endFactor - this.startFactor) * share
    return this.baseLrs.map((base) => base * factor)
  }

  protected override fields(): StateFields {
    const isEpochs = (count: number) => Number.isFinite(count) && count > 0
    return {
      ...super.fields(),
      startFactor: { key: 'start_factor', ...positiveShare },
      endFactor: { key: 'end_factor', isValid: isShare, expected: 'between 0 and 1' },
      totalIters: { key: 'total_iters', isValid: isEpochs, expected: 'a number above 0' },
    }
  }
}
