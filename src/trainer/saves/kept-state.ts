import type { Module, StateDict } from '../../nn/module.ts'
import type { GradScaler, GradScalerState } from '../../optim/grad-scaler.ts'
import type { Optimizer } from '../../optim/optimizer.ts'

/** How far a run has come. */
export interface Progress {
  /** Steps done. */
  readonly step: number
  /** Samples that this rank trained on. */
  readonly samples: number
  readonly loss: number
  /** Of the last evaluation; NaN before the first. */
  readonly value: number
  /** Of all evaluations so far. */
  readonly best: number
}

/** A run at some step, on the host: what it takes to go on from there on another device, bit for bit. */
export interface KeptState {
  readonly progress: Progress
  readonly model: StateDict
  readonly stepCount: number
  /** Updates begun, by cohort. */
  readonly steps: readonly number[]
  /** Optimizer state by bucket and name. */
  readonly pools: readonly ReadonlyMap<string, Float32Array<ArrayBuffer>>[]
  /** Of the loss scale, where there is one. */
  readonly scaler: GradScalerState | undefined
}

export const beginning: Progress = {
  step: 0,
  samples: 0,
  loss: Number.NaN,
  value: Number.NaN,
  best: Number.NaN,
}

/** Ranks keep at the same steps, but one may be lost while another has just kept: then both still have the state before it. */
const mostKept = 2

/** The newest states of a run; where there is none it goes on from its beginning, which the settings make, or the checkpoint it resumed. */
export class KeptStates {
  #states: readonly KeptState[] = []
  /** Where the run begins, on all ranks. */
  firstStep = 0

  get newest(): KeptState | undefined {
    return this.#states[0]
  }

  /** Steps of the states, the newest first, filled up with the beginning, which every rank can go on from and which is always the last. */
  get steps(): number[] {
    const steps = this.#states.map(({ progress }) => progress.step)
    return [...steps, ...Array<number>(mostKept + 1 - steps.length).fill(this.firstStep)]
  }

  add(state: KeptState): void {
    this.#states = [state, ...this.#states].slice(0, mostKept)
  }

  /** Forgets the states of later steps. */
  backTo(step: number): void {
    this.#states = this.#states.filter(({ progress }) => progress.step <= step)
  }
}

/** What a run's next step changes, but for what it is given. */
export interface RunParts {
  readonly model: Module
  readonly optimizer: Optimizer
  /** In float16. */
  readonly scaler?: GradScaler
}

/** Reads everything that the next step depends on. Between steps: nothing may be under way. */
export async function keepState(
  { model, optimizer, scaler }: RunParts,
  progress: Progress,
): Promise<KeptState> {
  const pools: Map<string, Float32Array<ArrayBuffer>>[] = []
  for (const { state } of optimizer.buckets) {
    const kept = new Map<string, Float32Array<ArrayBuffer>>()
    for (const [name, pool] of state) {
      // Other ranks have those of other stages.
      if (pool.memory) kept.set(name, (await pool.read()) as Float32Array<ArrayBuffer>)
    }
    pools.push(kept)
  }
  return {
    progress,
    model: await model.stateDict(),
    stepCount: optimizer.stepCount,
    steps: optimizer.cohorts.map(({ steps }) => steps),
    pools,
    scaler: await scaler?.stateDict(),
  }
}

/** Puts a kept state into the parts of a run whose step has been compiled. */
export function restoreState({ model, optimizer, scaler }: RunParts, kept: KeptState): void {
  model.loadStateDict(kept.model)
  optimizer.stepCount = kept.stepCount
  optimizer.cohorts.forEach((cohort, i) => {
    cohort.restart(kept.steps[i])
  })
  for (const [i, { state }] of optimizer.buckets.entries()) {
    for (const [name, pool] of state) {
      const data = kept.pools[i].get(name)
      if (data) pool.write(data)
    }
  }
  if (kept.scaler) scaler?.loadStateDict(kept.scaler)
}
