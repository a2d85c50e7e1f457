import { isWhole } from '../../util/is-whole.ts'
import { checkList } from '../../util/options.ts'
import { preparedLoads } from '../../util/prepared-loads.ts'
import {
  type AnyScheduler,
  checkOptimizer,
  checkOption,
  checkSchedulers,
  type LRScheduler,
  type Schedulable,
  type SchedulerState,
  wholly,
} from './scheduler.ts'
import { checkState, numbers, type StateField } from './state.ts'

/** Runs schedulers in sequence: number i + 1 starts at milestone i, as its epoch 0. */
export class SequentialLR implements AnyScheduler {
  readonly optimizer: Schedulable
  readonly #schedulers: readonly LRScheduler[]
  #milestones: number[]
  #lastEpoch = 0
  #lastLr: readonly number[]

  constructor(
    optimizer: Schedulable,
    schedulers: readonly LRScheduler[],
    milestones: readonly number[],
  ) {
    checkOptimizer('SequentialLR', optimizer)
    checkSchedulers(
      'SequentialLR',
      schedulers,
      'new SequentialLR(optimizer, [first, second], [milestone])',
    )
    checkList('SequentialLR', 'milestones', milestones, Number.isFinite, 'epochs')
    checkOption(
      'SequentialLR',
      'milestones',
      milestones,
      milestones.length === schedulers.length - 1,
      `one fewer than the ${schedulers.length} schedulers`,
    )
    const isOne = schedulers.every((scheduler) => scheduler.optimizer === optimizer)
    checkOption('SequentialLR', 'schedulers', 'another', isOne, 'on the same optimizer')
    this.optimizer = optimizer
    this.#schedulers = schedulers
    this.#milestones = [...milestones]
    // All of them made their epoch 0 when they were made; only the first one's is to hold.
    for (const group of optimizer.paramGroups) group.lr = group.initialLr!
    for (const scheduler of schedulers) scheduler.lastEpoch -= 1
    schedulers[0].initialStep()
    this.#lastLr = schedulers[0].getLastLr()
  }

  /** Steps the scheduler whose turn it is. errors: those of its `step`; then nothing changes. */
  step(...args: []): void {
    checkStep('SequentialLR', this.optimizer, args)
    const epoch = this.#lastEpoch + 1
    const at = this.#milestones.filter((milestone) => milestone <= epoch).length
    const scheduler = this.#schedulers[at]
    if (at > 0 && this.#milestones[at - 1] === epoch) scheduler.step(0)
    else scheduler.step()
    this.#lastEpoch = epoch
    this.#lastLr = scheduler.getLastLr()
  }

  getLastLr(): readonly number[] {
    return this.#lastLr
  }

  stateDict(): SchedulerState {
    return {
      _milestones: [...this.#milestones],
      last_epoch: this.#lastEpoch,
      _last_lr: [...this.#lastLr],
      _schedulers: this.#schedulers.map((scheduler) => scheduler.stateDict()),
    }
  }

  loadStateDict(state: SchedulerState): void {
    this.prepareLoad(state)()
  }

  /** @internal Checks a state as `loadStateDict` does; what it returns loads it. */
  prepareLoad(state: SchedulerState): () => void {
    const loads = loadsOf('SequentialLR', this.#schedulers, state, [
      { key: '_milestones', ...numbers(this.#milestones.length) },
      { key: 'last_epoch', isValid: isWhole, expected: 'a whole number from 0 up' },
      { key: '_last_lr', ...numbers(this.#lastLr.length) },
    ])
    const milestones = [...(state['_milestones'] as number[])]
    const lastLr = [...(state['_last_lr'] as number[])]
    return () => {
      for (const load of loads) load()
      this.#milestones = milestones
      this.#lastEpoch = state['last_epoch'] as number
      this.#lastLr = lastLr
    }
  }
}

/** Applies all schedulers in each step, one after the other. */
export class ChainedScheduler implements AnyScheduler {
  readonly optimizer: Schedulable
  readonly #schedulers: readonly AnyScheduler[]
  #lastLr: number[]

  constructor(schedulers: readonly AnyScheduler[]) {
    checkSchedulers('ChainedScheduler', schedulers, 'new ChainedScheduler([first, second])')
    checkOption('ChainedScheduler', 'schedulers', 0, schedulers.length > 0, 'at least one')
    const [{ optimizer }] = schedulers
    const isOne = schedulers.every((scheduler) => scheduler.optimizer === optimizer)
    checkOption('ChainedScheduler', 'schedulers', 'another', isOne, 'on the same optimizer')
    this.optimizer = optimizer
    this.#schedulers = schedulers
    this.#lastLr = optimizer.paramGroups.map(({ lr }) => lr)
  }

  /** Steps all schedulers. errors: those of their `step`; then nothing changes. */
  step(...args: []): void {
    checkStep('ChainedScheduler', this.optimizer, args)
    const undo: (() => void)[] = []
    const stepAll = () => {
      for (const scheduler of this.#schedulers) {
        const state = scheduler.stateDict()
        scheduler.step()
        undo.push(() => scheduler.loadStateDict(state))
      }
    }
    wholly(this.optimizer, stepAll, () => {
      for (const one of undo) one()
    })
    this.#lastLr = this.optimizer.paramGroups.map(({ lr }) => lr)
  }

  getLastLr(): readonly number[] {
    return this.#lastLr
  }

  stateDict(): SchedulerState {
    return {
      _last_lr: [...this.#lastLr],
      _schedulers: this.#schedulers.map((scheduler) => scheduler.stateDict()),
    }
  }

  loadStateDict(state: SchedulerState): void {
    this.prepareLoad(state)()
  }

  /** @internal Checks a state as `loadStateDict` does; what it returns loads it. */
  prepareLoad(state: SchedulerState): () => void {
    const loads = loadsOf('ChainedScheduler', this.#schedulers, state, [
      { key: '_last_lr', ...numbers(this.#lastLr.length) },
    ])
    const lastLr = [...(state['_last_lr'] as number[])]
    return () => {
      for (const load of loads) load()
      this.#lastLr = lastLr
    }
  }
}

/** errors: `config.invalid` for an argument, which no scheduler of schedulers takes. */
function checkStep(name: string, optimizer: Schedulable, [epoch]: readonly unknown[]): void {
  checkOptimizer(name, optimizer)
  checkOption(`${name}.step`, 'epoch', epoch, epoch === undefined, 'left out')
}

/** Checks the states of all parts, and returns what loads them. errors: `data.malformed`. */
function loadsOf(
  name: string,
  schedulers: readonly AnyScheduler[],
  state: SchedulerState,
  own: readonly StateField[],
): (() => unknown)[] {
  const isOfParts = (states: unknown[]) =>
    Array.isArray(states) && states.length === schedulers.length
  const expected = `the states of ${schedulers.length} schedulers`
  checkState(name, state, [...own, { key: '_schedulers', isValid: isOfParts, expected }])
  const states = state['_schedulers'] as SchedulerState[]
  return preparedLoads(schedulers.map((scheduler, i) => [scheduler, states[i]]))
}
