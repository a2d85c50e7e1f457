import type { Trace } from '../graph/trace/trace.ts'
import type { GraphNode } from '../graph/trace/value.ts'
import { adagrad } from '../kernels/adagrad/adagrad.ts'
import type { SettleAttrs } from '../kernels/grad-scaler/settle.ts'
import { Optimizer } from './optimizer.ts'
import { checkNotNegative, type ParamGroup, type Params } from './settings.ts'
import { emitUpdate, type Slice, slots } from './slice.ts'
import type { StateNames } from './state-dict.ts'

export interface AdagradSettings {
  /** Learning rate; default 1e-2. */
  lr: number
  /** The learning rate of step t is lr / (1 + (t - 1) lrDecay); default 0. */
  lrDecay: number
  /** Default 0. */
  weightDecay: number
  /** Initial value of the sums of squares; default 0. */
  initialAccumulatorValue: number
  /** Added to the denominator; default 1e-10. */
  eps: number
}

export type AdagradOptions = Partial<AdagradSettings>

/** Adagrad, like torch.optim.Adagrad. source: Duchi, Hazan and Singer, JMLR 12 (2011). */
export class Adagrad extends Optimizer<AdagradSettings> {
  protected readonly stateNames: StateNames = { sum: true }
  constructor(params: Params<AdagradSettings>, options: AdagradOptions = {}) {
    const defaults = {
      lr: 1e-2,
      lrDecay: 0,
      weightDecay: 0,
      initialAccumulatorValue: 0,
      eps: 1e-10,
    }
    super(params, defaults, options)
  }

  protected update(trace: Trace, slice: Slice, group: ParamGroup<AdagradSettings>): GraphNode[] {
    const settings = {
      ...slots(trace, { weightDecay: () => group.weightDecay, eps: () => group.eps }),
      lr: slice.isSettled
        ? { control: 2 }
        : trace.scalars.add(() => group.lr / (1 + (slice.steps() - 1) * group.lrDecay)),
    }
    const sum = slice.state('sum', group.initialAccumulatorValue)
    return [emitUpdate(adagrad, slice, [sum], settings)]
  }

  protected override settleAttrs(
    trace: Trace,
    group: ParamGroup<AdagradSettings>,
    step: () => number,
  ): SettleAttrs {
    return {
      form: 'adagrad',
      ...slots(trace, {
        step,
        lr: () => group.lr,
        lrDecay: () => group.lrDecay,
      }),
    }
  }

  protected check(settings: AdagradSettings): void {
    const { lr, lrDecay, weightDecay, initialAccumulatorValue, eps } = settings
    checkNotNegative('Adagrad', { lr, lrDecay, weightDecay, initialAccumulatorValue, eps })
  }
}
