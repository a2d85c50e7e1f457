import { isRecord } from '../../util/kind-of.ts'
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
    this.prepareLoad(state)()
  }

  /** @internal Checks a state as `loadStateDict` does; what it returns loads it. */
  prepareLoad(state: SchedulerState): () => void {
    const loads = loadsOf('SequentialLR', this, this.#schedulers, state)
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
    this.prepareLoad(state)()
  }

  /** @internal Checks a state as `loadStateDict` does; what it returns loads it. */
  prepareLoad(state: SchedulerState): () => void {
    const loads = loadsOf('ChainedScheduler', this, this.#schedulers, state)
    const lastLr = [...(state['_last_lr'] as number[])]
    return () => {
      for (const load of loads) load()
      this.#lastLr = lastLr
    }
  }
}

/** Checks the states of all parts, and returns what loads them. errors: `data.malformed`. */
function loadsOf(
  name: string,
  whole: AnyScheduler,
  schedulers: readonly AnyScheduler[],
  state: SchedulerState,
): (() => unknown)[] {
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
  const states = state['_schedulers'] as SchedulerState[]
  return preparedLoads(schedulers.map((scheduler, i) => [scheduler, states[i]]))
}
