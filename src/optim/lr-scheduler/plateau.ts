import { isWhole } from '../../util/is-whole.ts'
import {
  checkChoice,
  checkNumber,
  checkOptions,
  isNoNan,
  isNotNegative,
  isShare,
} from '../../util/options.ts'
import {
  checkOptimizer,
  checkOption,
  perGroup,
  type Schedulable,
  type SchedulerState,
} from './scheduler.ts'
import { checkState, numbers, type StateField } from './state.ts'

export interface PlateauOptions {
  /** True if the metric should fall or rise; default `min`. */
  mode?: 'min' | 'max'
  /** Factor for the learning rates; default 0.1. */
  factor?: number
  /** Number of epochs without improvement to tolerate; default 10. */
  patience?: number
  /** Smallest change that counts as an improvement; default 1e-4. */
  threshold?: number
  /** True if the threshold is relative to the best value or absolute; default `rel`. */
  thresholdMode?: 'rel' | 'abs'
  /** Number of epochs to ignore after a reduction; default 0. */
  cooldown?: number
  /** Default 0. */
  minLr?: number | readonly number[]
  /** Smaller changes of a learning rate are skipped; default 1e-8. */
  eps?: number
}

const modes = ['min', 'max'] as const
const thresholdModes = ['rel', 'abs'] as const
const oneOf = (choices: readonly string[]) => ({
  isValid: (choice: string) => choices.includes(choice),
  expected: `one of ${choices.join(', ')}`,
})
const notNegative = {
  isValid: (value: number) => isNoNan(value) && value >= 0,
  expected: 'at least 0',
}
const lowering = {
  isValid: (value: number) => isShare(value) && value < 1,
  expected: 'from 0 to below 1',
}

/** Lowers the learning rates when a metric stops improving, like torch's ReduceLROnPlateau: call `step(metric)` after each epoch. */
export class ReduceLROnPlateau {
  readonly optimizer: Schedulable
  #options: Required<Omit<PlateauOptions, 'minLr'>> & { minLrs: number[] }
  /** `null` before the first epoch. */
  #best: number | null = null
  #badEpochs = 0
  #cooldownLeft = 0
  #lastEpoch = 0
  #lastLr: number[]

  constructor(optimizer: Schedulable, options: PlateauOptions = {}) {
    const name = 'ReduceLROnPlateau'
    checkOptimizer(name, optimizer)
    checkOptions(name, options, {
      mode: true,
      factor: true,
      patience: true,
      threshold: true,
      thresholdMode: true,
      cooldown: true,
      minLr: true,
      eps: true,
    })
    checkChoice(name, 'mode', options.mode, modes)
    checkChoice(name, 'thresholdMode', options.thresholdMode, thresholdModes)
    for (const key of ['patience', 'threshold', 'cooldown', 'eps'] as const)
      checkNumber(name, key, options[key], notNegative.isValid, notNegative.expected)
    checkNumber(name, 'factor', options.factor, lowering.isValid, lowering.expected)
    const { mode = 'min', factor = 0.1, patience = 10, threshold = 1e-4 } = options
    const { thresholdMode = 'rel', cooldown = 0, minLr = 0, eps = 1e-8 } = options
    const minLrs = perGroup(
      name,
      'minLr',
      minLr,
      optimizer.paramGroups.length,
      isNotNegative,
      'a number from 0 up',
    )
    this.optimizer = optimizer
    this.#options = { mode, factor, patience, threshold, thresholdMode, cooldown, minLrs, eps }
    this.#lastLr = optimizer.paramGroups.map(({ lr }) => lr)
  }

  /** Processes the metric of an epoch. errors: `config.invalid` unless it is a number. */
  step(metric: number): void {
    checkOptimizer('ReduceLROnPlateau', this.optimizer)
    checkOption('ReduceLROnPlateau.step', 'metric', metric, typeof metric === 'number', 'a number')
    const { patience, cooldown } = this.#options
    this.#lastEpoch++
    if (this.#isBetter(metric)) {
      this.#best = metric
      this.#badEpochs = 0
    } else {
      this.#badEpochs++
    }
    if (this.#cooldownLeft > 0) {
      this.#cooldownLeft--
      this.#badEpochs = 0
    }
    if (this.#badEpochs > patience) {
      this.#reduce()
      this.#cooldownLeft = cooldown
      this.#badEpochs = 0
    }
    this.#lastLr = this.optimizer.paramGroups.map(({ lr }) => lr)
  }

  getLastLr(): readonly number[] {
    return this.#lastLr
  }

  stateDict(): SchedulerState {
    const { mode, factor, patience, threshold, thresholdMode, cooldown, minLrs, eps } =
      this.#options
    return {
      mode,
      factor,
      patience,
      threshold,
      threshold_mode: thresholdMode,
      cooldown,
      min_lrs: [...minLrs],
      eps,
      best: this.#best,
      num_bad_epochs: this.#badEpochs,
      cooldown_counter: this.#cooldownLeft,
      last_epoch: this.#lastEpoch,
      _last_lr: [...this.#lastLr],
    }
  }

  /**
   * Loads a saved state.
   *
   * errors: `data.malformed` for another kind of scheduler, another number of groups, or what the constructor refuses; then nothing changes.
   */
  loadStateDict(state: SchedulerState): void {
    this.prepareLoad(state)()
  }

  /** @internal Checks a state as `loadStateDict` does; what it returns loads it. */
  prepareLoad(state: SchedulerState): () => void {
    const saved = structuredClone(checkState('ReduceLROnPlateau', state, this.#fields()))
    return () => {
      this.#options = {
        mode: saved['mode'] as 'min' | 'max',
        factor: saved['factor'] as number,
        patience: saved['patience'] as number,
        threshold: saved['threshold'] as number,
        thresholdMode: saved['threshold_mode'] as 'rel' | 'abs',
        cooldown: saved['cooldown'] as number,
        minLrs: saved['min_lrs'] as number[],
        eps: saved['eps'] as number,
      }
      this.#best = saved['best'] as number | null
      this.#badEpochs = saved['num_bad_epochs'] as number
      this.#cooldownLeft = saved['cooldown_counter'] as number
      this.#lastEpoch = saved['last_epoch'] as number
      this.#lastLr = saved['_last_lr'] as number[]
    }
  }

  #fields(): readonly StateField[] {
    const groups = this.#options.minLrs.length
    const whole = { isValid: isWhole, expected: 'a whole number from 0 up' }
    const isBest = (best: number | null) => best === null || isNoNan(best)
    return [
      { key: 'mode', ...oneOf(modes) },
      { key: 'factor', ...lowering },
      { key: 'patience', ...notNegative },
      { key: 'threshold', ...notNegative },
      { key: 'threshold_mode', ...oneOf(thresholdModes) },
      { key: 'cooldown', ...notNegative },
      { key: 'min_lrs', ...numbers(groups, isNotNegative) },
      { key: 'eps', ...notNegative },
      { key: 'best', isValid: isBest, expected: 'a number or null' },
      { key: 'num_bad_epochs', ...whole },
      { key: 'cooldown_counter', ...notNegative },
      { key: 'last_epoch', ...whole },
      { key: '_last_lr', ...numbers(groups) },
    ]
  }

  #isBetter(metric: number): boolean {
    const { mode, threshold, thresholdMode } = this.#options
    const sign = mode === 'min' ? -1 : 1
    const best = this.#best ?? -sign * Number.POSITIVE_INFINITY
    const limit = thresholdMode === 'rel' ? best * (1 + sign * threshold) : best + sign * threshold
    return mode === 'min' ? metric < limit : metric > limit
  }

  #reduce(): void {
    const { factor, minLrs, eps } = this.#options
    this.optimizer.paramGroups.forEach((group, i) => {
      const next = Math.max(group.lr * factor, minLrs[i])
      if (group.lr - next > eps) group.lr = next
    })
  }
}
