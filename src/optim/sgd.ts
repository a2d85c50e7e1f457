import type { Trace } from '../graph/trace/trace.ts'
import type { GraphNode } from '../graph/trace/value.ts'
import type { SettleAttrs } from '../kernels/grad-scaler/settle.ts'
import { sgd, sgdMomentum, sgdNesterov } from '../kernels/sgd/sgd.ts'
import { TabringError } from '../util/errors.ts'
import type { ExactSettings } from './exact/exact-optimizer.ts'
import { Optimizer } from './optimizer.ts'
import { checkNotNegative, type ParamGroup, type Params } from './settings.ts'
import { emitUpdate, type Slice, slots } from './slice.ts'
import type { StateNames } from './state-dict.ts'

export interface SGDSettings {
  /** Learning rate; default 1e-3. */
  lr: number
  /** Default 0: no momentum buffer. */
  momentum: number
  /** Default 0. */
  dampening: number
  /** Default 0. */
  weightDecay: number
  /** Default false. */
  nesterov: boolean
}

export type SGDOptions = Partial<SGDSettings>

/** Share of a gradient that goes into the momentum buffer; 1 without momentum. */
const undamped = ({ momentum, dampening }: SGDSettings): number =>
  momentum === 0 ? 1 : 1 - dampening

/**
 * Stochastic gradient descent with momentum, like torch.optim.SGD.
 *
 * `momentum` and `nesterov` decide when the step is compiled whether there is a momentum buffer, and its form; a later change makes runs
 * fail. If momentum becomes 0, later steps are plain descent; the buffer then follows the gradient, where PyTorch leaves it unchanged.
 */
export class SGD extends Optimizer<SGDSettings> {
  protected readonly stateNames: StateNames = { momentum_buffer: 'momentum' }
  protected override readonly savesStep = false

  constructor(params: Params<SGDSettings>, options: SGDOptions = {}) {
    const defaults = {
      lr: 1e-3,
      momentum: 0,
      dampening: 0,
      weightDecay: 0,
      nesterov: false,
    }
    super(params, defaults, options)
  }

  protected update(trace: Trace, slice: Slice, group: ParamGroup<SGDSettings>): GraphNode[] {
    const common = slots(trace, { lr: () => group.lr, weightDecay: () => group.weightDecay })
    if (group.momentum === 0) return [emitUpdate(sgd, slice, [], common)]
    const settings = {
      ...common,
      ...slots(trace, { momentum: () => group.momentum }),
      // PyTorch fills the momentum buffer with the whole first gradient, undamped.
      gradScale: slice.isSettled
        ? { control: 2 }
        : trace.scalars.add(() => (slice.steps() <= 1 ? 1 : undamped(group))),
    }
    const op = group.nesterov ? sgdNesterov : sgdMomentum
    return [emitUpdate(op, slice, [slice.state('momentum_buffer')], settings)]
  }

  /** @internal */
  override hostForm(): ExactSettings | undefined {
    const [{ lr, momentum, dampening, weightDecay, nesterov }] = this.paramGroups
    return dampening !== 0 || weightDecay !== 0 || nesterov
      ? undefined
      : { kind: 'sgd', lr, momentum }
  }

  protected override settleAttrs(
    trace: Trace,
    group: ParamGroup<SGDSettings>,
    step: () => number,
  ): SettleAttrs {
    return {
      form: 'sgd',
      ...slots(trace, { step, undamped: () => undamped(group) }),
    }
  }

  protected override fixedSetting(
    compiled: Readonly<SGDSettings>,
    now: Readonly<SGDSettings>,
  ): string | undefined {
    if (now.momentum === 0) return undefined
    if (compiled.momentum === 0) return 'momentum'
    return now.nesterov === compiled.nesterov ? undefined : 'nesterov'
  }

  protected check({ lr, momentum, weightDecay, dampening, nesterov }: SGDSettings): void {
    checkNotNegative('SGD', { lr, momentum, weightDecay })
    if (nesterov && (momentum <= 0 || dampening !== 0)) {
      throw new TabringError(
        'config.invalid',
        `SGD: nesterov needs a momentum and no dampening, got momentum ${momentum} and dampening ${dampening}. Set momentum, or remove nesterov.`,
      )
    }
  }
}
