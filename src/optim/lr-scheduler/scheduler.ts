import { TabringError } from '../../util/errors.ts'
import type { ParamGroup } from '../settings.ts'
import { checkState, type SchedulerState } from './state.ts'

export type { SchedulerState } from './state.ts'

/** What a scheduler needs of an optimizer. */
export interface Schedulable {
  readonly paramGroups: readonly ParamGroup[]
}

/** What learning-rate schedulers have in common, for those that are made of others. */
export interface AnyScheduler {
  readonly optimizer: Schedulable
  step(): void
  getLastLr(): readonly number[]
  stateDict(): SchedulerState
  loadStateDict(state: SchedulerState): void
}

/**
 * The base of the schedulers that set each group's learning rate from its epoch, as torch.optim.lr_scheduler's.
 *
 * `step` counts an epoch, or whatever the caller counts, and sets `lr` in the optimizer's groups; the next run of a compiled step reads it.
 * Most are chainable: they change the present learning rate, so several may act on one optimizer. A subclass's constructor ends with
 * `initialStep`. `stateDict` holds all but the optimizer and functions.
 */
export abstract class LRScheduler implements AnyScheduler {
  readonly optimizer: Schedulable
  lastEpoch = -1
  protected baseLrs: number[]
  protected stepCount = 0
  protected lastLr: number[] = []

  constructor(optimizer: Schedulable) {
    this.optimizer = optimizer
    for (const group of optimizer.paramGroups) group.initialLr ??= group.lr
    this.baseLrs = optimizer.paramGroups.map(({ initialLr }) => initialLr!)
  }

  /** The learning rates of `lastEpoch`, by group, from the present ones. */
  protected abstract rates(): number[]

  /** The same from the base rates alone, where there is such a form. */
  protected closedForm(): number[] {
    return this.rates()
  }

  /** Fields that `stateDict` holds: PyTorch's key by field. */
  protected fields(): Record<string, string> {
    return {
      baseLrs: 'base_lrs',
      lastEpoch: 'last_epoch',
      stepCount: '_step_count',
      lastLr: '_last_lr',
    }
  }

  /** The step that makes epoch 0; SequentialLR does it again. */
  initialStep(): void {
    this.stepCount = 0
    this.step()
  }

  /** Goes on by one epoch, or to `epoch`, and sets the learning rates. */
  step(epoch?: number): void {
    this.stepCount++
    this.lastEpoch = epoch ?? this.lastEpoch + 1
    this.set(epoch === undefined ? this.rates() : this.closedForm())
  }

  /** The learning rates set last, by group. */
  getLastLr(): readonly number[] {
    return this.lastLr
  }

  stateDict(): SchedulerState {
    const own = this as unknown as Record<string, unknown>
    return structuredClone(
      Object.fromEntries(Object.entries(this.fields()).map(([field, key]) => [key, own[field]])),
    )
  }

  /**
   * Takes numbers over; the optimizer's state dict holds the learning rates.
   *
   * errors: `data.malformed` for a state of another kind of scheduler, or another number of groups; nothing is changed then.
   */
  loadStateDict(state: SchedulerState): void {
    checkState(this.constructor.name, state, this.stateDict())
    const own = this as unknown as Record<string, unknown>
    for (const [field, key] of Object.entries(this.fields()))
      own[field] = structuredClone(state[key])
  }

  /** Sets the groups' learning rates. */
  protected set(rates: readonly number[]): void {
    this.optimizer.paramGroups.forEach((group, i) => {
      group.lr = rates[i]
    })
    this.lastLr = this.present()
  }

  /** The groups' learning rates as they are. */
  protected present(): number[] {
    return this.optimizer.paramGroups.map(({ lr }) => lr)
  }

  /** The groups' learning rates times `factor`. */
  protected scaled(factor: number): number[] {
    return this.present().map((lr) => lr * factor)
  }
}

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
      `${scheduler}: ${option} must be ${expected}, got ${JSON.stringify(value)}. Give another ${option}.`,
    )
  }
}

/** `value` for each group: an array as it is, a number for all. errors: `config.invalid` for another length. */
export function perGroup<T>(
  scheduler: string,
  option: string,
  value: T | readonly T[],
  groups: number,
): T[] {
  const all = Array.isArray(value) ? (value as T[]) : Array<T>(groups).fill(value as T)
  checkOption(
    scheduler,
    option,
    all.length,
    all.length === groups,
    `one value, or one for each of ${groups} groups`,
  )
  return [...all]
}
