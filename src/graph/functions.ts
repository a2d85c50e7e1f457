import { conv2d as conv2dOp } from '../kernels/conv2d/conv2d.ts'
import { crossEntropy as crossEntropyOp } from '../kernels/cross-entropy/cross-entropy.ts'
import { matmul } from '../kernels/matmul/matmul.ts'
import { maxPool2d as maxPool2dOp } from '../kernels/max-pool2d/max-pool2d.ts'
import type { ScalarSlot } from '../kernels/op.ts'
import { topKCorrect as topKCorrectOp } from '../kernels/top-k/top-k.ts'
import { emit, emitAll, type Tensor } from './tensor.ts'
import { activeTrace } from './trace.ts'

/** Functions on tensors, named as in torch.nn.functional. */

type Pair = number | readonly [number, number]
const pair = (value: Pair): [number, number] =>
  typeof value === 'number' ? [value, value] : [value[0], value[1]]

export const relu = (x: Tensor): Tensor => x.relu()

/** shape: x[R, K], weight[C, K], bias[C] -> [R, C] */
export function linear(x: Tensor, weight: Tensor, bias?: Tensor): Tensor {
  const product = emit(matmul, [x, weight], { form: 'nt', epilogue: [], rowSums: false })
  return bias ? product.add(bias) : product
}

/** shape: x[N, C, H, W], weight[O, C, KH, KW], bias[O] -> [N, O, OH, OW] */
export function conv2d(
  x: Tensor,
  weight: Tensor,
  bias?: Tensor,
  options: { stride?: Pair; padding?: Pair } = {},
): Tensor {
  const attrs = {
    stride: pair(options.stride ?? 1),
    padding: pair(options.padding ?? 0),
    epilogue: [],
  }
  const result = emit(conv2dOp, [x, weight], attrs)
  return bias ? result.add(bias.reshape([-1, 1, 1])) : result
}

/** shape: x[N, C, H, W] -> [N, C, OH, OW]; of equal values the first in row-major order wins. */
export function maxPool2d(
  x: Tensor,
  kernel: Pair,
  options: { stride?: Pair; padding?: Pair } = {},
): Tensor {
  const attrs = {
    kernel: pair(kernel),
    stride: pair(options.stride ?? kernel),
    padding: pair(options.padding ?? 0),
  }
  return emitAll(maxPool2dOp, [x], attrs)[0]
}

/** Which rows of a padded batch count: a step scalar, or all of them. */
export interface RowCount {
  count?: ScalarSlot
}

/**
 * The mean over rows of -log softmax(logits)[target].
 *
 * shape: logits[R, C], target[R] of i32 in 0..C-1 -> []
 */
export function crossEntropy(logits: Tensor, target: Tensor, { count }: RowCount = {}): Tensor {
  return emit(crossEntropyOp, [logits, target], { count: count ?? null })
}

/** How many rows have their target among the k largest logits. shape: logits[R, C], target[R] -> [] */
export function topKCorrect(
  logits: Tensor,
  target: Tensor,
  k = 1,
  { count }: RowCount = {},
): Tensor {
  return emit(topKCorrectOp, [logits, target], { k, count: count ?? null })
}

/** A number that each run of the compiled function gives anew, by name. */
export function stepScalar(name: string, initial = 0): ScalarSlot {
  return activeTrace('stepScalar').scalars.named(name, initial)
}
