import { topKCorrect as topKCorrectOp } from '../../kernels/top-k/top-k.ts'
import { calledAs } from '../../util/called-as.ts'
import { checkOptions } from '../../util/options.ts'
import { elementwise, emit, mustBeTensor, product, type Tensor } from '../trace/tensor.ts'
import { mustBeFloat } from '../trace/tensor-arguments.ts'
import { mustCount, type SampleCount } from './sample-count.ts'

/** Functions on tensors, named as in torch.nn.functional. */

export { crossEntropy } from './losses.ts'
export { ofRows, type SampleCount, sampleCount, stepScalar } from './sample-count.ts'

export const relu = (x: Tensor): Tensor => elementwise('relu', { x })

/** Returns x W^T + b. shape: x[.., K], weight[C, K], bias[C] -> [.., C] */
export function linear(x: Tensor, weight: Tensor, bias?: Tensor): Tensor {
  mustBeTensor('linear', { x, weight }, { bias })
  mustBeFloat('linear', x, weight)
  if (x.shape.length === 1) {
    return linear(x.reshape([1, x.count]), weight, bias).reshape([weight.shape[0]])
  }
  return calledAs('linear', ['matmul', 'add'], () => product(x, weight, 'nt', bias))
}

/** Returns the number of rows whose target is among the k largest logits. shape: logits[R, C], target[R] -> [] */
export function topKCorrect(
  logits: Tensor,
  target: Tensor,
  k = 1,
  options: SampleCount = {},
): Tensor {
  const { count } = checkOptions('topKCorrect', options, { count: true })
  mustBeTensor('topKCorrect', { logits, target })
  mustCount('topKCorrect', count)
  return emit(topKCorrectOp, [logits, target], { k, count: count ?? null })
}
