import type { Trace } from '../graph/trace/trace.ts'
import type { GraphNode } from '../graph/trace/value.ts'
import {
  rmsprop,
  rmspropCentered,
  rmspropCenteredMomentum,
  rmspropMomentum,
} from '../kernels/rmsprop/rmsprop.ts'
import { Optimizer } from './optimizer.ts'
import { checkNotNegative, type ParamGroup, type Params } from './settings.ts'
import { emitUpdate, type Slice, slots } from './slice.ts'
import type { StateNames } from './state-dict.ts'

export interface RMSpropSettings {
  /** Learning rate; default 1e-2. */
  lr: number
  /** Decay rate of the mean squared gradient; default 0.99. */
  alpha: number
  /** Added to the denominator; default 1e-8. */
  eps: number
  /** Default 0. */
  weightDecay: number
  /** Default 0: no momentum buffer. */
  momentum: number
  /** Divide by the gradient's standard deviation instead of its root mean square; default false. */
  centered: boolean
}

export type RMSpropOptions = Partial<RMSpropSettings>

/**
 * RMSprop, like torch.optim.RMSprop. source: Hinton's lecture 6e.
 *
 * `momentum` and `centered` decide which states exist when the step is compiled; a later change makes runs fail. Only momentum may become
 * 0.
 */
export class RMSprop extends Optimizer<RMSpropSettings> {
  protected readonly stateNames: StateNames = {
    square_avg: true,
    grad_avg: 'centered',
    momentum_buffer: 'momentum',
  }
  constructor(params: Params<RMSpropSettings>, options: RMSpropOptions = {}) {
    const defaults = {
      lr: 1e-2,
      alpha: 0.99,
      eps: 1e-8,
      weightDecay: 0,
      momentum: 0,
      centered: false,
    }
    super(params, defaults, options)
  }

  protected update(trace: Trace, slice: Slice, group: ParamGroup<RMSpropSettings>): GraphNode[] {
    const common = slots(trace, {
      lr: () => group.lr,
      weightDecay: () => group.weightDecay,
      alpha: () => group.alpha,
      oneMinusAlpha: () => 1 - group.alpha,
      eps: () => group.eps,
    })
    const averages = [
      slice.state('square_avg'),
      ...(group.centered ? [slice.state('grad_avg')] : []),
    ]
    if (group.momentum === 0) {
      const op = group.centered ? rmspropCentered : rmsprop
      return [emitUpdate(op, slice, averages, common)]
    }
    const settings = { ...common, ...slots(trace, { momentum: () => group.momentum }) }
    const op = group.centered ? rmspropCenteredMomentum : rmspropMomentum
    return [emitUpdate(op, slice, [...averages, slice.state('momentum_buffer')], settings)]
  }

  protected override fixedSetting(
    compiled: Readonly<RMSpropSettings>,
    now: Readonly<RMSpropSettings>,
  ): string | undefined {
    if (now.centered !== compiled.centered) return 'centered'
    return compiled.momentum === 0 && now.momentum !== 0 ? 'momentum' : undefined
  }

  protected check({ lr, alpha, eps, weightDecay, momentum }: RMSpropSettings): void {
    checkNotNegative('RMSprop', { lr, alpha, eps, weightDecay, momentum })
  }
}
