import { norm } from '../../kernels/norm/norm.ts'
import { ShapeError } from '../../util/errors.ts'
import { checkEps, checkNumber, isCount } from '../../util/options.ts'
import { checkWholes, countElements, formatShape, type Shape, sameShape } from '../../util/shape.ts'
import { emit, mustBeTensor, type Tensor, toFloat } from '../trace/tensor.ts'
import { ones } from './shape.ts'

/**
 * The inputs of `norm`: weight and bias follow x where they exist. An x of f16 is read as it is; the result is f32, as in PyTorch.
 *
 * The kernel takes a bias behind a weight, so that one without gets ones, which have no gradient.
 */
function withParameters(x: Tensor, weight?: Tensor, bias?: Tensor): Tensor[] {
  const scale = weight ?? (bias && ones(bias.shape))
  return [x, ...(scale ? [toFloat(scale)] : []), ...(bias ? [toFloat(bias)] : [])]
}

/** errors: `shape.mismatch` unless x ends in `normalizedShape`. */
function checkEnd(where: string, x: Tensor, normalizedShape: Shape): void {
  checkWholes(where, 'normalizedShape', normalizedShape, 0)
  const end = x.shape.slice(x.shape.length - normalizedShape.length)
  if (normalizedShape.length === 0 || !sameShape(end, normalizedShape)) {
    throw new ShapeError(
      'shape.mismatch',
      `${where}: x must end in normalizedShape, ${formatShape(normalizedShape)}, got ${formatShape(x.shape)}. Check the layer's size.`,
    )
  }
}

/**
 * Returns x normalized to mean 0 and variance 1 over its last axes, times weight, plus bias.
 *
 * shape: x[..., *normalizedShape], weight and bias [*normalizedShape].
 * source: Ba, Kiros and Hinton, arXiv 1607.06450; torch.nn.functional.layer_norm.
 */
export function layerNorm(
  x: Tensor,
  normalizedShape: Shape,
  weight?: Tensor,
  bias?: Tensor,
  eps = 1e-5,
): Tensor {
  mustBeTensor('layerNorm', { x }, { weight, bias })
  checkEnd('layerNorm', x, normalizedShape)
  checkEps('layerNorm', eps)
  const size = countElements(normalizedShape)
  const attrs = { size, groups: 1, span: 1, eps, isCentered: true }
  return emit(norm, withParameters(x, weight, bias), attrs, 'layerNorm')
}

/**
 * Returns x divided by the root of its mean square over the last axes, times weight.
 *
 * shape: x[..., *normalizedShape], weight [*normalizedShape]. `eps` defaults to float32's machine epsilon, as in PyTorch.
 * source: Zhang and Sennrich, arXiv 1910.07467; torch.nn.functional.rms_norm.
 */
export function rmsNorm(
  x: Tensor,
  normalizedShape: Shape,
  weight?: Tensor,
  eps = 2 ** -23,
): Tensor {
  mustBeTensor('rmsNorm', { x }, { weight })
  checkEnd('rmsNorm', x, normalizedShape)
  checkEps('rmsNorm', eps)
  const size = countElements(normalizedShape)
  const attrs = { size, groups: 1, span: 1, eps, isCentered: false }
  return emit(norm, withParameters(x, weight), attrs, 'rmsNorm')
}

/**
 * Returns x normalized to mean 0 and variance 1 over each of `numGroups` groups of channels per sample, times weight, plus bias by channel.
 *
 * shape: x[N, C, ...], weight and bias [C]; numGroups divides C.
 * source: Wu and He, arXiv 1803.08494; torch.nn.functional.group_norm.
 */
export function groupNorm(
  x: Tensor,
  numGroups: number,
  weight?: Tensor,
  bias?: Tensor,
  eps = 1e-5,
): Tensor {
  mustBeTensor('groupNorm', { x }, { weight, bias })
  checkNumber('groupNorm', 'numGroups', numGroups, isCount, 'a whole number above 0', true)
  checkEps('groupNorm', eps)
  const [, channels = 0, ...space] = x.shape
  if (x.shape.length < 2 || channels % numGroups !== 0) {
    throw new ShapeError(
      'shape.unsupported',
      `groupNorm: expected [N, C, ...] with C a multiple of numGroups, ${numGroups}, got ${formatShape(x.shape)}. Choose a divisor of C.`,
    )
  }
  const span = countElements(space)
  const attrs = {
    size: (channels / numGroups) * span,
    groups: numGroups,
    span,
    eps,
    isCentered: true,
  }
  return emit(norm, withParameters(x, weight, bias), attrs, 'groupNorm')
}
