import { ShapeError } from '../../util/errors.ts'
import { checkArgument, checkNumber, checkOptions, isCount } from '../../util/options.ts'
import { formatShape } from '../../util/shape.ts'
import { mustBeTensor, type Tensor } from '../trace/tensor.ts'
import { checkpoint } from './checkpoint.ts'
import { crossEntropy, ignoredClass, meanOver } from './losses.ts'

export interface ChunkedLossOptions {
  /** Target of rows to ignore; default -100. */
  readonly ignoreIndex?: number
  /** Rows whose logits exist at once; default 64. */
  readonly chunk?: number
}

/**
 * Returns the mean of -log softmax(head(x))[target] over the rows that count, without storing all logits.
 *
 * `head`: what makes logits of rows, such as the forward of the output layer; frozen parameters in it get no gradient.
 * shape: x [N, K], target [N] of i32 -> [], head [n, K] -> [n, C]
 * cost: memory for the logits of `chunk` rows and their gradient; backward computes the logits a second time.
 * numerics: NaN for a mean over no rows, as `crossEntropy`.
 */
export function chunkedCrossEntropy(
  x: Tensor,
  head: (rows: Tensor) => Tensor,
  target: Tensor,
  options: ChunkedLossOptions = {},
): Tensor {
  const where = 'chunkedCrossEntropy'
  const known = { ignoreIndex: true, chunk: true } as const
  const { ignoreIndex = ignoredClass, chunk = 64 } = checkOptions(where, options, known)
  checkNumber(where, 'ignoreIndex', ignoreIndex, Number.isInteger, 'a whole number')
  checkNumber(where, 'chunk', chunk, isCount, 'a whole number above 0')
  mustBeTensor(where, { x, target })
  checkArgument(where, 'head', head, typeof head === 'function', 'a function of rows')
  const [count] = x.shape
  if (x.shape.length !== 2 || target.shape.length !== 1 || target.shape[0] !== count) {
    throw new ShapeError(
      'shape.mismatch',
      `${where}: expected x [N, K] and target [N], got ${formatShape(x.shape)} and ${formatShape(target.shape)}. Pass one target for each row.`,
    )
  }
  const lossOf = (rows: Tensor, targets: Tensor) => {
    const logits = head(rows)
    mustBeTensor(where, { 'head()': logits })
    return crossEntropy(logits, targets, { ignoreIndex, reduction: 'sum' })
  }
  const losses: Tensor[] = []
  for (let at = 0; at < count; at += chunk) {
    const rows = Math.min(chunk, count - at)
    losses.push(checkpoint(lossOf, x.narrow(0, at, rows), target.narrow(0, at, rows)))
  }
  const total = losses.reduce((sum, loss) => sum.add(loss))
  const mean = total.div(target.ne(ignoreIndex).sum())
  return meanOver(mean, {
    rows: count,
    count: null,
    classes: { target: target.value, ignoreIndex },
  })
}
