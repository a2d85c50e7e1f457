import type { Parameter } from '../graph/parameter.ts'
import type { Trace } from '../graph/trace.ts'
import { emitNode, type GraphNode } from '../graph/value.ts'
import { type AdamwAttrs, adamw } from '../kernels/adamw/adamw.ts'
import type { Op } from '../kernels/op.ts'
import { Optimizer, type ParameterGroup, type Slice } from './optimizer.ts'

export interface AdamWOptions {
  /** Learning rate; default 1e-3. */
  lr?: number
  /** Decay rates of the two moments; default [0.9, 0.999]. */
  betas?: readonly [number, number]
  /** Added to the denominator; default 1e-8. */
  eps?: number
  /** Decoupled weight decay; default 0.01. */
  weightDecay?: number
}

type AdamWGroup = ParameterGroup & { options: Required<AdamWOptions> }

/** Adam with decoupled weight decay, with PyTorch's defaults. source: Loshchilov and Hutter, arXiv 1711.05101. */
export class AdamW extends Optimizer<AdamWGroup> {
  constructor(parameters: readonly Parameter[], options: AdamWOptions = {}) {
    const { lr = 1e-3, betas = [0.9, 0.999], eps = 1e-8, weightDecay = 0.01 } = options
    super([{ parameters, lr, options: { lr, betas, eps, weightDecay } }])
  }

  protected update(trace: Trace, slice: Slice, group: AdamWGroup): GraphNode[] {
    const [beta1, beta2] = group.options.betas
    const attrs: AdamwAttrs = {
      lr: trace.scalars.add(() => group.lr),
      biasCorrection1: trace.scalars.add(() => 1 - beta1 ** this.stepCount),
      biasCorrection2: trace.scalars.add(() => 1 - beta2 ** this.stepCount),
      beta1,
      beta2,
      eps: group.options.eps,
      weightDecay: group.options.weightDecay,
      start: 0,
      length: slice.length,
    }
    const state = [slice.state('expAvg'), slice.state('expAvgSq')]
    return [emitNode(adamw as Op, [slice.parameter, slice.gradient, ...state], attrs)]
  }
}
