import { isTracing } from '../../graph/trace/trace.ts'
import { ArgumentTypeError, TabringError } from '../../util/errors.ts'
import { isWhole } from '../../util/is-whole.ts'
import { isRecord, quoted } from '../../util/kind-of.ts'
import { checkArgument, checkNumber, isNotNegative } from '../../util/options.ts'
import { countArguments, refusePythonNames } from '../../util/plain-callers.ts'
import type { ParamGroup } from '../settings.ts'
import { checkState, numbers, type SchedulerState, type StateFields } from './state.ts'

export type { SchedulerState, StateFields } from './state.ts'

/** The parts of an optimizer that a scheduler needs. */
export interface Schedulable {
  readonly paramGroups: readonly ParamGroup[]
}

/** Common interface of all learning-rate schedulers, for those that combine others. */
export interface AnyScheduler {
  readonly optimizer: Schedulable
  step(): void
  getLastLr(): readonly number[]
  stateDict(): SchedulerState
  loadStateDict(state: SchedulerState): void
}

/**
 * Base class of the schedulers that set each group's learning rate from its epoch, like torch.optim.lr_scheduler's.
 *
 * `step` counts an epoch (or any other unit the caller chooses) and sets `lr` in the optimizer's groups; the next run of a compiled step
 * reads it. Most are chainable: they change the current learning rate, so several may act on one optimizer. The constructor of a subclass
 * must end with `initialStep`. `stateDict` contains all state except the optimizer and functions.
 */
export abstract class LRScheduler implements AnyScheduler {
  readonly optimizer: Schedulable
  lastEpoch = -1
  protected baseLrs: number[]
  readonly #groups: number
  protected stepCount = 0
  protected lastLr: number[]

  constructor(optimizer: Schedulable) {
    checkOptimizer(new.target.name, optimizer)
    this.optimizer = optimizer
    for (const group of optimizer.paramGroups) group.initialLr ??= group.lr
    this.baseLrs = optimizer.paramGroups.map(({ initialLr }) => initialLr!)
    this.#groups = this.baseLrs.length
    this.lastLr = this.present()
  }

  /** Returns the learning rates of `lastEpoch` by group, computed from the current ones. */
  protected abstract rates(): number[]

  /** Returns the same rates computed from the base rates, if there is a closed form. */
  protected closedForm(): number[] {
    return this.rates()
  }

  /** True if an epoch may be a fraction. */
  protected get hasFractions(): boolean {
    return false
  }

  /** Fields included in `stateDict`, which each step and each loaded state checks. */
  protected fields(): StateFields {
    return {
      baseLrs: { key: 'base_lrs', ...numbers(this.#groups, isNotNegative) },
      lastEpoch: { key: 'last_epoch', isValid: isEpoch, expected: 'a number from -1 up' },
      stepCount: { key: '_step_count', isValid: isWhole, expected: 'a whole number from 0 up' },
      lastLr: { key: '_last_lr', ...numbers(this.#groups) },
    }
  }

  /** Performs the step to epoch 0; SequentialLR repeats it. */
  initialStep(): void {
    this.stepCount = 0
    this.step()
  }

  /**
   * Advances by one epoch, or to `epoch`, and sets the learning rates.
   *
   * errors: `config.invalid` for an epoch below 0, a field that the constructor would refuse, or a resulting learning rate that is no
   * number; then nothing changes.
   */
  step(epoch?: number): void {
    const name = this.constructor.name
    if (isTracing())
      throw new TabringError(
        'graph.misuse',
        `${name}.step: called in a function that is being compiled, where it would run once. Call it between runs.`,
      )
    checkOptimizer(name, this.optimizer)
    const { hasFractions } = this
    const isEpochHere = (value: number) => isNotNegative(value) && (hasFractions || isWhole(value))
    const range = `a ${hasFractions ? '' : 'whole '}number from 0 up (a loss is for ReduceLROnPlateau)`
    checkNumber(name, 'epoch', epoch, isEpochHere, range)
    for (const [field, { isValid, expected, isArgument }] of Object.entries(this.fields())) {
      const value: unknown = Reflect.get(this, field)
      const check = isArgument ? checkRequired : checkOption
      check(name, field, value, isValid(value as never), expected)
    }
    const before = { ...this }
    wholly(
      this.optimizer,
      () => this.set(this.advance(epoch)),
      () => Object.assign(this, before),
    )
  }

  /** Counts the epoch and returns its learning rates. */
  protected advance(epoch?: number): number[] {
    this.stepCount++
    this.lastEpoch = epoch ?? this.lastEpoch + 1
    return epoch === undefined ? this.rates() : this.closedForm()
  }

  /** Returns the last learning rates that were set, by group. */
  getLastLr(): readonly number[] {
    return this.lastLr
  }

  stateDict(): SchedulerState {
    const own = this as unknown as Record<string, unknown>
    return structuredClone(
      Object.fromEntries(
        Object.entries(this.fields()).map(([field, { key }]) => [key, own[field]]),
      ),
    )
  }

  /**
   * Loads a saved state; the learning rates are in the optimizer's state dict.
   *
   * errors: `data.malformed` for another kind of scheduler, another number of groups, or what its constructor refuses; then nothing changes.
   */
  loadStateDict(state: SchedulerState): void {
    this.prepareLoad(state)()
  }

  /** @internal Checks a state as `loadStateDict` does; what it returns loads it. */
  prepareLoad(state: SchedulerState): () => void {
    const fields = Object.entries(this.fields())
    const rules = fields.map(([, field]) => field)
    checkState(this.constructor.name, state, rules)
    const saved = fields.map(([field, { key }]) => [field, structuredClone(state[key])])
    return () => {
      Object.assign(this, Object.fromEntries(saved))
    }
  }

  /** Sets the learning rates of the groups that the scheduler began with. */
  protected set(rates: readonly number[]): void {
    rates.forEach((rate, i) => {
      checkOption(
        this.constructor.name,
        `lr of group ${i}`,
        rate,
        Number.isFinite(rate),
        'a number',
      )
    })
    rates.forEach((rate, i) => {
      this.optimizer.paramGroups[i].lr = rate
    })
    this.lastLr = this.present()
  }

  /** Returns the current learning rates of the groups. */
  protected present(): number[] {
    return this.optimizer.paramGroups.map(({ lr }) => lr)
  }

  /** Returns the learning rates of the groups times `factor`. */
  protected scaled(factor: number): number[] {
    return this.present().map((lr) => lr * factor)
  }
}

const isEpoch = (epoch: number): boolean => Number.isFinite(epoch) && epoch >= -1

/** Runs `step`; where it fails, the optimizer's groups are as they were, and `undo` has been called. */
export function wholly(optimizer: Schedulable, step: () => void, undo: () => void): void {
  const before = optimizer.paramGroups.map((group) => [group, { ...group }] as const)
  try {
    step()
  } catch (error) {
    for (const [group, settings] of before) Object.assign(group, settings)
    undo()
    throw error
  }
}

/** errors: a TypeError, naming the scheduler, for what is no optimizer. */
export function checkOptimizer(scheduler: string, optimizer: Schedulable): void {
  const isOptimizer = isRecord(optimizer) && Array.isArray(optimizer.paramGroups)
  checkArgument(scheduler, 'optimizer', optimizer, isOptimizer, 'an optimizer')
}

/** errors: a TypeError, naming the scheduler and how it is made, for what is no list of schedulers. */
export function checkSchedulers(
  scheduler: string,
  schedulers: readonly AnyScheduler[],
  form: string,
): void {
  if (Array.isArray(schedulers) && schedulers.every(isScheduler)) return
  throw new ArgumentTypeError(
    `${scheduler}: schedulers must be a list of schedulers, got ${quoted(schedulers)}. Write ${form}.`,
  )
}

const isScheduler = (one: AnyScheduler): boolean =>
  isRecord(one) && isRecord(one.optimizer) && typeof one.getLastLr === 'function'

/** errors: `config.invalid`, naming scheduler and option. */
export function checkOption(
  scheduler: string,
  option: string,
  value: unknown,
  isValid: boolean,
  expected: string,
): void {
  if (!isValid) {
    throw new TabringError(
      'config.invalid',
      `${scheduler}: ${option} must be ${expected}, got ${quoted(value)}. Change ${option}.`,
    )
  }
}

/** errors: as `checkOption`, naming also how the scheduler is made, for what should be the required argument `name`. */
export function checkRequired(
  scheduler: string,
  name: string,
  value: unknown,
  isValid: boolean,
  expected: string,
): void {
  if (isValid) return
  throw new TabringError(
    'config.invalid',
    `${scheduler}: ${name} must be ${expected}, got ${quoted(value)}. Write new ${scheduler}(optimizer, ${name}, { … }).`,
  )
}

/** `value` for each group: an array as it is, one value for all. errors: `config.invalid` for another length, or what is not `expected`. */
export function perGroup<T>(
  scheduler: string,
  option: string,
  value: T | readonly T[],
  groups: number,
  isOne: (value: T) => boolean,
  expected: string,
): T[] {
  const all = Array.isArray(value) ? (value as T[]) : Array<T>(groups).fill(value as T)
  checkOption(
    scheduler,
    option,
    all.length,
    all.length === groups,
    `one value, or one for each of ${groups} groups`,
  )
  checkOption(scheduler, option, value, all.every(isOne), `${expected}, or one for each group`)
  return [...all]
}

countArguments(LRScheduler)
refusePythonNames(LRScheduler)
