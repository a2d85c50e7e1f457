import { isRecord } from '../../util/kind-of.ts'
import { checkList } from '../../util/options.ts'
import {
  type AnyScheduler,
  checkOptimizer,
  checkOption,
  checkSchedulers,
  type LRScheduler,
  type Schedulable,
  type SchedulerState,
} from './scheduler.ts'
import { checkState } from './state.ts'

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
    checkList(
      'SequentialLR',
      'milestones',
      milestones,
      (epoch) => typeof epoch === 'number',
      'epochs',
    )
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

  step(): void {
    this.#lastEpoch++
    const at = this.#milestones.filter((milestone) => milestone <= this.#lastEpoch).length
    const scheduler = this.#schedulers[at]
    if (at > 0 && this.#milestones[at - 1] === this.#lastEpoch) scheduler.step(0)
    else scheduler.step()
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
    loadAll('SequentialLR', this, this.#schedulers, state)
    this.#milestones = [...(state['_milestones'] as number[])]
    this.#lastEpoch = state['last_epoch'] as number
    this.#lastLr = [...(state['_last_lr'] as number[])]
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

  step(): void {
    for (const scheduler of this.#schedulers) scheduler.step()
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
    loadAll('ChainedScheduler', this, this.#schedulers, state)
    this.#lastLr = [...(state['_last_lr'] as number[])]
  }
}

/** Loads the states of all parts, or of none. errors: `data.malformed`. */
function loadAll(
  name: string,
  whole: AnyScheduler,
  schedulers: readonly AnyScheduler[],
  state: SchedulerState,
): void {
  const own = whole.stateDict()
  // Each part checks its own.
  const parts = (all: unknown) => (Array.isArray(all) ? all.map(() => ({})) : all)
  checkState(
    name,
    isRecord(state) && '_schedulers' in state
      ? { ...state, _schedulers: parts(state['_schedulers']) }
      : state,
    { ...own, _schedulers: parts(own['_schedulers']) },
  )
  const before = schedulers.map((scheduler) => scheduler.stateDict())
  try {
    schedulers.forEach((scheduler, i) => {
      scheduler.loadStateDict((state['_schedulers'] as SchedulerState[])[i])
    })
  } catch (error) {
    schedulers.forEach((scheduler, i) => {
      scheduler.loadStateDict(before[i])
    })
    throw error
  }
}
