import type { Trace } from '../graph/trace/trace.ts'
import type { GraphNode } from '../graph/trace/value.ts'
import { lion } from '../kernels/lion/lion.ts'
import { Optimizer } from './optimizer.ts'
import { checkBetas, checkNotNegative, type ParamGroup, type Params } from './settings.ts'
import { emitUpdate, type Slice, slots } from './slice.ts'
import type { StateNames } from './state-dict.ts'

export interface LionSettings {
  /** Learning rate; default 1e-4. */
  lr: number
  /** Weight of the momentum in the direction, and its decay rate; default [0.9, 0.99]. */
  betas: readonly [number, number]
  /** Decoupled weight decay; default 0. */
  weightDecay: number
}

export type LionOptions = Partial<LionSettings>

/** Lion: steps of equal size in the direction of the momentum's sign. source: Chen et al., arXiv 2302.06675. */
export class Lion extends Optimizer<LionSettings> {
  protected readonly stateNames: StateNames = { exp_avg: true }
  protected override readonly savesStep = false

  constructor(params: Params<LionSettings>, options: LionOptions = {}) {
    super(params, { lr: 1e-4, betas: [0.9, 0.99], weightDecay: 0 }, options)
  }

  protected update(trace: Trace, slice: Slice, group: ParamGroup<LionSettings>): GraphNode[] {
    const settings = slots(trace, {
      decay: () => 1 - group.lr * group.weightDecay,
      lr: () => group.lr,
      beta1: () => group.betas[0],
      oneMinusBeta1: () => 1 - group.betas[0],
      beta2: () => group.betas[1],
      oneMinusBeta2: () => 1 - group.betas[1],
    })
    return [emitUpdate(lion, slice, [slice.state('exp_avg')], settings)]
  }

  protected check({ lr, betas, weightDecay }: LionSettings): void {
    checkNotNegative('Lion', { lr, weightDecay })
    checkBetas('Lion', betas)
  }
}
