import { TabringError } from '../../util/errors.ts'
import {
  checkChoice,
  checkFlag,
  checkNumber,
  checkOptions,
  isCount,
  isShare,
  type OptionNames,
} from '../../util/options.ts'
import type { ParamGroup } from '../settings.ts'
import {
  checkOption,
  checkRequired,
  LRScheduler,
  perGroup,
  type Schedulable,
  type StateFields,
} from './scheduler.ts'

export interface OneCycleOptions {
  /** Number of steps in the whole cycle; alternatively, set `epochs` and `stepsPerEpoch`. */
  totalSteps?: number
  epochs?: number
  stepsPerEpoch?: number
  /** Fraction of the cycle in which the learning rate rises; default 0.3. */
  pctStart?: number
  /** Default `cos`. */
  annealStrategy?: 'cos' | 'linear'
  /** True if momentum (or Adam's first beta) cycles inversely to the learning rate; default true. */
  cycleMomentum?: boolean
  /** Default 0.85. */
  baseMomentum?: number | readonly number[]
  /** Default 0.95. */
  maxMomentum?: number | readonly number[]
  /** The initial learning rate is maxLr / divFactor; default 25. */
  divFactor?: number
  /** The final learning rate is the initial one / finalDivFactor; default 1e4. */
  finalDivFactor?: number
  /** Default false. */
  threePhase?: boolean
}

const optionNames: OptionNames<OneCycleOptions> = {
  totalSteps: true,
  epochs: 'number',
  stepsPerEpoch: 'number',
  pctStart: true,
  annealStrategy: true,
  cycleMomentum: true,
  baseMomentum: true,
  maxMomentum: true,
  divFactor: true,
  finalDivFactor: true,
  threePhase: true,
}

/** What a group has besides, where its optimizer has it. */
type CycledGroup = ParamGroup & { momentum?: number; betas?: readonly [number, number] }
type LrName = 'initialLr' | 'maxLr' | 'minLr'
type MomentumName = 'maxMomentum' | 'baseMomentum'

interface Phase {
  readonly endStep: number
  readonly lr: readonly [LrName, LrName]
  readonly momentum: readonly [MomentumName, MomentumName]
}

/**
 * One cycle: learning rates rise to `maxLr`, then fall far below the start; momentum does the opposite. Call `step` after every batch.
 * source: arXiv 1708.07120.
 *
 * errors: `config.invalid`, also from a `step` past the last one.
 */
export class OneCycleLR extends LRScheduler {
  protected totalSteps: number
  protected cycleMomentum: boolean
  readonly #phasesOf: (totalSteps: number) => Phase[]
  readonly #anneal: (start: number, end: number, share: number) => number

  /** `maxLr`: peak learning rate; one value, or one per group. */
  constructor(
    optimizer: Schedulable,
    maxLr: number | readonly number[],
    options: OneCycleOptions = {},
  ) {
    super(optimizer)
    const isRate = [maxLr].flat().every((rate) => Number.isFinite(rate) && rate >= 0)
    checkRequired('OneCycleLR', 'maxLr', maxLr, isRate, 'a number, or one for each group')
    checkOptions('OneCycleLR', options, optionNames)
    checkChoice('OneCycleLR', 'annealStrategy', options.annealStrategy, ['cos', 'linear'])
    for (const key of ['divFactor', 'finalDivFactor'] as const)
      checkNumber(
        'OneCycleLR',
        key,
        options[key],
        (value) => value > 0 && Number.isFinite(value),
        'above 0',
      )
    const { epochs = 0, stepsPerEpoch = 0, totalSteps = epochs * stepsPerEpoch } = options
    const { pctStart = 0.3, divFactor = 25, finalDivFactor = 1e4 } = options
    const { baseMomentum = 0.85, maxMomentum = 0.95 } = options
    checkOption('OneCycleLR', 'totalSteps', totalSteps, isCount(totalSteps), aCount)
    checkNumber('OneCycleLR', 'pctStart', pctStart, isShare, 'between 0 and 1')
    for (const key of ['cycleMomentum', 'threePhase'] as const)
      checkFlag('OneCycleLR', key, options[key])
    this.totalSteps = totalSteps
    this.cycleMomentum = options.cycleMomentum ?? true
    this.#anneal = options.annealStrategy === 'linear' ? linear : cosine
    this.#phasesOf = (steps) => phasesOf(steps, pctStart, options.threePhase ?? false)

    const groups: readonly CycledGroup[] = optimizer.paramGroups
    const each = <T>(option: string, value: T | readonly T[], isOne: (one: T) => boolean) =>
      perGroup('OneCycleLR', option, value, groups.length, isOne, 'a number from 0 to below 1')
    const maxLrs = each('maxLr', maxLr, Number.isFinite)
    const isMomentum = (one: number) => isShare(one) && one < 1
    const bases = each('baseMomentum', baseMomentum, isMomentum)
    const tops = each('maxMomentum', maxMomentum, isMomentum)
    const isCycled = (group: CycledGroup) =>
      group.momentum !== undefined || group.betas !== undefined
    const hasMomentum = !this.cycleMomentum || groups.every(isCycled)
    checkOption('OneCycleLR', 'optimizer', 'none', hasMomentum, 'one with momentum or betas')
    groups.forEach((group, i) => {
      group.initialLr = maxLrs[i] / divFactor
      group.maxLr = maxLrs[i]
      group.minLr = group.initialLr / finalDivFactor
      if (!this.cycleMomentum) return
      group.maxMomentum = tops[i]
      group.baseMomentum = bases[i]
    })
    this.baseLrs = groups.map(({ initialLr }) => initialLr!)
    this.initialStep()
  }

  protected rates(): number[] {
    const step = this.lastEpoch
    if (step > this.totalSteps)
      throw new TabringError(
        'config.invalid',
        `OneCycleLR.step: step ${step} of ${this.totalSteps}. Raise totalSteps, or step less often.`,
      )
    const phases = this.#phasesOf(this.totalSteps)
    const last = phases.length - 1
    const at = phases.findIndex(({ endStep }, i) => step <= endStep || i === last)
    const { endStep, lr, momentum } = phases[at]
    const startStep = at === 0 ? 0 : phases[at - 1].endStep
    const share = (step - startStep) / (endStep - startStep)
    return (this.optimizer.paramGroups as readonly CycledGroup[]).map((group) => {
      if (this.cycleMomentum) {
        const next = this.#anneal(group[momentum[0]]!, group[momentum[1]]!, share)
        if (group.betas) group.betas = [next, group.betas[1]]
        else group.momentum = next
      }
      return this.#anneal(group[lr[0]]!, group[lr[1]]!, share)
    })
  }

  protected override fields(): StateFields {
    return {
      ...super.fields(),
      totalSteps: { key: 'total_steps', isValid: isCount, expected: aCount },
      cycleMomentum: { key: 'cycle_momentum', ...flag },
    }
  }
}

const aCount = 'a whole number above 0'
const flag = { isValid: (on: unknown) => typeof on === 'boolean', expected: 'true or false' }

const cosine = (start: number, end: number, share: number): number =>
  end + ((start - end) / 2) * (Math.cos(Math.PI * share) + 1)

const linear = (start: number, end: number, share: number): number => (end - start) * share + start

function phasesOf(totalSteps: number, pctStart: number, isThreePhase: boolean): Phase[] {
  const up: Phase = {
    endStep: pctStart * totalSteps - 1,
    lr: ['initialLr', 'maxLr'],
    momentum: ['maxMomentum', 'baseMomentum'],
  }
  if (!isThreePhase) {
    return [
      up,
      {
        endStep: totalSteps - 1,
        lr: ['maxLr', 'minLr'],
        momentum: ['baseMomentum', 'maxMomentum'],
      },
    ]
  }
  return [
    up,
    {
      endStep: 2 * pctStart * totalSteps - 2,
      lr: ['maxLr', 'initialLr'],
      momentum: ['baseMomentum', 'maxMomentum'],
    },
    {
      endStep: totalSteps - 1,
      lr: ['initialLr', 'minLr'],
      momentum: ['maxMomentum', 'maxMomentum'],
    },
  ]
}
