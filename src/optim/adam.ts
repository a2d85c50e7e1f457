import type { Trace } from '../graph/trace/trace.ts'
import type { GraphNode } from '../graph/trace/value.ts'
import { adam, adamAmsgrad } from '../kernels/adam/adam.ts'
import type { SettleAttrs } from '../kernels/grad-scaler/settle.ts'
import type { ExactSettings } from './exact/exact-optimizer.ts'
import { Optimizer } from './optimizer.ts'
import { checkBetas, checkNotNegative, type ParamGroup, type Params } from './settings.ts'
import { emitUpdate, type Slice, slots } from './slice.ts'
import type { StateNames } from './state-dict.ts'

export interface AdamSettings {
  /** Learning rate; default 1e-3. */
  lr: number
  /** Decay rates of the two moments; default [0.9, 0.999]. */
  betas: readonly [number, number]
  /** Added to the denominator; default 1e-8. */
  eps: number
  /** Default 0 in Adam, where it is added to the gradient; 0.01 in AdamW, where it shrinks the parameter. */
  weightDecay: number
  /** Divide by the largest second moment so far; default false. Fixed when the step is compiled: a later change makes runs fail. */
  amsgrad: boolean
}

export type AdamOptions = Partial<AdamSettings>
export type AdamWOptions = AdamOptions

const defaults: AdamSettings = {
  lr: 1e-3,
  betas: [0.9, 0.999],
  eps: 1e-8,
  weightDecay: 0,
  amsgrad: false,
}

/** A beta of 0 has no logarithm; e^-100 is nothing beside 1. */
const logOf = (beta: number): number => Math.max(Math.log(beta), -100)

/** Common base of Adam and AdamW, which differ only in how they apply the weight decay. */
abstract class AdamBase extends Optimizer<AdamSettings> {
  protected readonly stateNames: StateNames = {
    exp_avg: true,
    exp_avg_sq: true,
    max_exp_avg_sq: 'amsgrad',
  }
  protected abstract readonly isDecoupled: boolean

  protected update(trace: Trace, slice: Slice, group: ParamGroup<AdamSettings>): GraphNode[] {
    const isDecoupled = this.isDecoupled
    const correction = (beta: number) => 1 - beta ** slice.steps()
    const settings = {
      ...slots(trace, {
        decay: () => (isDecoupled ? 1 - group.lr * group.weightDecay : 1),
        l2: () => (isDecoupled ? 0 : group.weightDecay),
        beta1: () => group.betas[0],
        oneMinusBeta1: () => 1 - group.betas[0],
        beta2: () => group.betas[1],
        oneMinusBeta2: () => 1 - group.betas[1],
      }),
      ...(slice.isSettled
        ? { stepSize: { control: 2 }, eps: { control: 3 } }
        : slots(trace, {
            stepSize: () =>
              (group.lr * Math.sqrt(correction(group.betas[1]))) / correction(group.betas[0]),
            eps: () => group.eps * Math.sqrt(correction(group.betas[1])),
          })),
    }
    const moments = [slice.state('exp_avg'), slice.state('exp_avg_sq')]
    return group.amsgrad
      ? [emitUpdate(adamAmsgrad, slice, [...moments, slice.state('max_exp_avg_sq')], settings)]
      : [emitUpdate(adam, slice, moments, settings)]
  }

  /** @internal */
  override hostForm(): ExactSettings | undefined {
    const [{ lr, betas, eps, weightDecay, amsgrad }] = this.paramGroups
    if (amsgrad || (weightDecay !== 0 && !this.isDecoupled)) return undefined
    return { kind: 'adamw', lr, betas: [betas[0], betas[1]], eps, weightDecay }
  }

  protected override settleAttrs(
    trace: Trace,
    group: ParamGroup<AdamSettings>,
    step: () => number,
  ): SettleAttrs {
    return {
      form: 'adam',
      ...slots(trace, {
        step,
        lr: () => group.lr,
        logBeta1: () => logOf(group.betas[0]),
        logBeta2: () => logOf(group.betas[1]),
        eps: () => group.eps,
      }),
    }
  }

  protected override fixedSetting(
    compiled: Readonly<AdamSettings>,
    now: Readonly<AdamSettings>,
  ): string | undefined {
    return now.amsgrad === compiled.amsgrad ? undefined : 'amsgrad'
  }

  protected check({ lr, betas, eps, weightDecay }: AdamSettings): void {
    checkNotNegative(this.constructor.name, { lr, eps, weightDecay })
    checkBetas(this.constructor.name, betas)
  }
}

/** Adam with weight decay added to the gradient, like torch.optim.Adam. source: Kingma and Ba, arXiv 1412.6980. */
export class Adam extends AdamBase {
  protected readonly isDecoupled = false
  constructor(params: Params<AdamSettings>, options: AdamOptions = {}) {
    super(params, defaults, options)
  }
}

/** Adam with decoupled weight decay, like torch.optim.AdamW. source: Loshchilov and Hutter, arXiv 1711.05101. */
export class AdamW extends AdamBase {
  protected readonly isDecoupled = true
  constructor(params: Params<AdamSettings>, options: AdamWOptions = {}) {
    super(params, { ...defaults, weightDecay: 0.01 }, options)
  }
}
