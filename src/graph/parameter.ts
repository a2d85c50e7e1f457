import { type Shape, tensorType } from '../util/shape.ts'
import type { GradientExchange } from './exchange.ts'
import { StoredTensor } from './stored-tensor.ts'
import { type Tensor, TracedTensor } from './tensor.ts'
import { activeTrace } from './trace.ts'
import { GraphValue } from './value.ts'

/** A tensor that training changes by its gradient. */
export class Parameter extends StoredTensor<Float32Array<ArrayBuffer>> {
  readonly value: GraphValue
  /** Frozen parameters get no gradient and are never updated. */
  requiresGrad = true
  /** Set by DistributedDataParallel: how gradients are summed over ranks. */
  exchange: GradientExchange | undefined

  constructor(shape: Shape, data: Float32Array<ArrayBuffer>) {
    const type = tensorType(shape)
    super(type, data)
    this.value = new GraphValue(type, { kind: 'parameter', parameter: this })
  }

  /** The gradient that `backward` gave it in the function being compiled; undefined before, and after `zeroGrad`. */
  get grad(): Tensor | undefined {
    const gradient = activeTrace('grad').gradients.get(this)
    return gradient && new TracedTensor(gradient)
  }
}
