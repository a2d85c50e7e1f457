import { gather as gatherOp, scatterAdd as scatterAddOp } from '../../kernels/gather/gather.ts'
import { indexSelect as indexSelectOp } from '../../kernels/index-select/index-select.ts'
import { oneHot as oneHotOp } from '../../kernels/one-hot/one-hot.ts'
import { ShapeError } from '../../util/errors.ts'
import { checkNumber, checkOptions, isCount } from '../../util/options.ts'
import { formatShape, resolveAxis } from '../../util/shape.ts'
import { emit, mustBeTensor, type Tensor } from '../trace/tensor.ts'
import { activeTrace } from '../trace/trace.ts'

/**
 * Functions that look elements up by integer tensors, named as in torch.
 *
 * Runs check the indices that they are given, and refuse those out of range. A kernel cannot stop at one that the step computes: it gives
 * NaN there (0 for integers; `oneHot` a row of zeros), which the loss then shows.
 */

/** Has runs check the indices along an axis of `x`. */
function boundIndices(of: string, x: Tensor, axis: number, index: Tensor): void {
  activeTrace(of).bound({ of, what: 'index', index: index.value, end: x.shape[axis] })
}

/** Returns y with y[i][j] = x[index[i][j]][j] for dim 0, and so on. The gradient is summed in index order. */
export function gather(x: Tensor, dim: number, index: Tensor): Tensor {
  const axis = resolveAxis('gather', 'dim', mustBeTensor('gather', { x, index }).shape, dim)
  const y = emit(gatherOp, [x, index], { axis })
  boundIndices('gather', x, axis, index)
  return y
}

/**
 * Returns x with src[i][j] added at [index[i][j]][j] for dim 0, and so on, in order of i: the same bits in every run.
 *
 * cost: a search along the index for each element, or one invocation per line if lines are many and long.
 */
export function scatterAdd(x: Tensor, dim: number, index: Tensor, src: Tensor): Tensor {
  const axis = resolveAxis(
    'scatterAdd',
    'dim',
    mustBeTensor('scatterAdd', { x, index, src }).shape,
    dim,
  )
  const y = emit(scatterAddOp, [index, src, x], { axis, shape: x.shape })
  boundIndices('scatterAdd', x, axis, index)
  return y
}

/** Returns slices of x along an axis, selected by a one-dimensional index. cost of the gradient: as embedding. */
export function indexSelect(x: Tensor, dim: number, index: Tensor): Tensor {
  mustBeTensor('indexSelect', { x, index })
  if (index.shape.length !== 1) {
    throw new ShapeError(
      'shape.mismatch',
      `indexSelect: the index must have 1 dimension, got ${formatShape(index.shape)}. Flatten it, or use gather().`,
    )
  }
  const axis = resolveAxis('indexSelect', 'dim', x.shape, dim)
  const y = emit(indexSelectOp, [x, index], { axis, ignored: null })
  boundIndices('indexSelect', x, axis, index)
  return y
}

/** Returns rows of zeros with a 1 at the index, as f32 (integers in PyTorch). shape: index[..] -> [.., numClasses] */
export function oneHot(index: Tensor, numClasses: number): Tensor {
  mustBeTensor('oneHot', { index })
  checkNumber('oneHot', 'numClasses', numClasses, isCount, 'a whole number above 0', true)
  const y = emit(oneHotOp, [index], { classes: numClasses })
  activeTrace('oneHot').bound({
    of: 'oneHot',
    what: 'class',
    index: index.value,
    end: numClasses,
  })
  return y
}

/**
 * Returns rows of a table. shape: index[..], weight[V, D] -> [.., D]
 *
 * `paddingIdx`: a row that gets no gradient; negative values count from the end.
 * cost of the gradient, for N indices: N^2 integer comparisons, N rows added in order of position, V*D elements cleared. The table is never
 * searched.
 */
export function embedding(
  index: Tensor,
  weight: Tensor,
  options: { paddingIdx?: number } = {},
): Tensor {
  const { paddingIdx } = checkOptions('embedding', options, { paddingIdx: 'number' })
  mustBeTensor('embedding', { index, weight })
  if (weight.shape.length !== 2) {
    throw new ShapeError(
      'shape.mismatch',
      `embedding: the weight must have 2 dimensions, got ${formatShape(weight.shape)}. Pass a table of rows.`,
    )
  }
  const [rows] = weight.shape
  const ignored = paddingIdx === undefined ? null : paddingIdx < 0 ? paddingIdx + rows : paddingIdx
  if (ignored !== null && !(Number.isInteger(ignored) && ignored >= 0 && ignored < rows)) {
    throw new ShapeError(
      'shape.mismatch',
      `embedding: paddingIdx must be a row of ${formatShape(weight.shape)}, got ${paddingIdx}. Rows count from 0.`,
    )
  }
  activeTrace('embedding').bound({ of: 'embedding', what: 'row', index: index.value, end: rows })
  return emit(indexSelectOp, [weight, index], { axis: 0, ignored }, 'embedding')
}
