import { matmul, plain } from '../../kernels/matmul/matmul.ts'
import { powerIteration } from '../../kernels/power-iteration/power-iteration.ts'
import { emit, emitAll, type Tensor } from '../trace/tensor.ts'

/** The vectors between which a weight's largest singular value is measured. */
export interface SingularVectors {
  /** shape: [H], H being the weight's size along `dim` */
  readonly u: Tensor
  /** shape: [W], W being the product of its other sizes */
  readonly v: Tensor
}

/** The weight as a matrix whose rows are those of `dim`. shape: [.., H, ..] -> [H, W] */
function asMatrix(weight: Tensor, dim: number): Tensor {
  const others = weight.shape.map((_, axis) => axis).filter((axis) => axis !== dim)
  return (dim === 0 ? weight : weight.permute(dim, ...others)).reshape([weight.shape[dim], -1])
}

/**
 * weight / sigma, sigma being uᵀ M v with the weight as a matrix M; u and v are constants for the gradient.
 *
 * With `iterations` above 0, u and v move first, in place, by as many power iterations.
 */
export function spectrallyNormalized(
  weight: Tensor,
  { u, v }: SingularVectors,
  { dim, iterations, eps }: { dim: number; iterations: number; eps: number },
): Tensor {
  const matrix = asMatrix(weight, dim)
  const [left, right] =
    iterations > 0 ? emitAll(powerIteration, [matrix.detach(), u, v], { iterations, eps }) : [u, v]
  // In float32 under autocast too: all of the weight is divided by this number.
  const stretched = emit(matmul, [matrix, right.reshape([1, -1])], plain('nt'))
  return weight.div(stretched.mul(left.reshape([-1, 1])).sum())
}
