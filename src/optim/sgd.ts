import type { Parameter } from '../graph/parameter.ts'
import type { Trace } from '../graph/trace.ts'
import { emitNode, type GraphNode } from '../graph/value.ts'
import type { Op } from '../kernels/op.ts'
import { sgd, sgdMomentum } from '../kernels/sgd/sgd.ts'
import { Optimizer, type ParameterGroup, type Slice } from './optimizer.ts'

export interface SGDOptions {
  /** Learning rate; default 1e-3. */
  lr?: number
  /** Default 0: no momentum buffer. */
  momentum?: number
  dampening?: number
  weightDecay?: number
  nesterov?: boolean
}

type SGDGroup = ParameterGroup & { options: Required<SGDOptions> }

/** Stochastic gradient descent with momentum, as torch.optim.SGD. */
export class SGD extends Optimizer<SGDGroup> {
  constructor(parameters: readonly Parameter[], options: SGDOptions = {}) {
    const { lr = 1e-3, momentum = 0, dampening = 0, weightDecay = 0, nesterov = false } = options
    super([{ parameters, lr, options: { lr, momentum, dampening, weightDecay, nesterov } }])
  }

  protected update(trace: Trace, slice: Slice, group: SGDGroup): GraphNode[] {
    const { momentum, dampening, weightDecay, nesterov } = group.options
    const common = {
      lr: trace.scalars.add(() => group.lr),
      weightDecay,
      start: 0,
      length: slice.length,
    }
    const inputs = [slice.parameter, slice.gradient]
    if (momentum === 0) return [emitNode(sgd as Op, inputs, common)]
    const attrs = {
      ...common,
      momentum,
      nesterov,
      // PyTorch fills the momentum buffer with the whole first gradient, undamped.
      gradScale: trace.scalars.add(() => (this.stepCount <= 1 ? 1 : 1 - dampening)),
    }
    return [emitNode(sgdMomentum as Op, [...inputs, slice.state('momentum')], attrs)]
  }
}
