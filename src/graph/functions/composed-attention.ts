import { lowestScore } from '../../kernels/attention/attention.ref.ts'
import { type AttentionAttrs, attentionSizes, checkMask } from '../../kernels/attention/geometry.ts'
import { dropout } from '../../kernels/dropout/dropout.ts'
import { matmul, plain } from '../../kernels/matmul/matmul.ts'
import { emit, type Tensor, toFloat } from '../trace/tensor.ts'
import { where } from './elementwise.ts'
import { pad } from './pad.ts'
import { ones, tril } from './shape.ts'

/** Added to a score, it hides the key. */
export const hiding = -1e38

/** Dropout draws words for 4 keys at once. */
const keysPerDraw = 4

/**
 * Attention out of products and a softmax, for an added mask that asks for a gradient and for values of another width than the keys':
 * what the op computes, its dropout masks included.
 *
 * shape: projections as `attrs.layout` says, values [.., S, V] where it is `heads`; mask broadcasts to [batch, heads, queries, keys], and
 * its gradient is summed over axes that broadcast.
 * numerics: float16 projections are read as float32, also under autocast: scores, probabilities and their gradients are float32 as the op's are.
 * Rounded to float16 before scale and mask, a score beyond 65,504 would be infinite.
 * cost: scores and probabilities of all pairs are stored, as are their gradients: memory grows with queries times keys.
 */
export function composedAttention(
  projections: readonly Tensor[],
  mask: Tensor | undefined,
  attrs: AttentionAttrs,
): Tensor {
  const [query, key = query, value = query] = projections
  const isHeads = attrs.layout === 'heads'
  // Sizes are those of queries and keys; values have their own width.
  const types = (isHeads ? [query, key, key] : projections).map((x) => x.value.type)
  const sizes = attentionSizes('attention', types, attrs)
  checkMask('attention', mask?.value.type, attrs, sizes)
  const { batch, heads, keyHeads, group, tq, tk, d, isHalf, output } = sizes
  const width = isHeads ? (value.shape.at(-1) ?? d) : d
  const [q, k, v] = [0, 1, 2].map((n) =>
    toFloat(byHeads(projections, n, attrs, n === 0 ? tq : tk, n === 2 ? width : d)),
  )
  // Rows of the query heads that share keys are rows of one product.
  const joined = (x: Tensor, columns: number) =>
    group === 1 ? x : x.reshape([batch, keyHeads, group * tq, columns])
  const apart = (x: Tensor, columns: number) =>
    group === 1 ? x : x.reshape([batch, heads, tq, columns])
  const products = apart(emit(matmul, [joined(q, d), k], plain('nt')), tk).mul(attrs.scale)
  const scores = attrs.mask === 'additive' && mask ? products.add(mask) : products
  const seen = seenPairs(mask, attrs, tq, tk)
  // A row that sees no key has equal probabilities until `seen` takes them away.
  const probabilities = seen ? where(seen, scores, hiding).softmax(3).mul(seen) : scores.softmax(3)
  const weights = joined(dropped(probabilities, attrs, tk), tk)
  const sums = apart(emit(matmul, [weights, v], plain('nn')), width)
  const o = isHalf ? sums.half() : sums
  if (isHeads) return o.reshape([...output.slice(0, -1), width])
  const order = attrs.isSequenceFirst ? [2, 0, 1, 3] : [0, 2, 1, 3]
  return o.permute(order).reshape([...output.slice(0, -1), heads * d])
}

/** 1 for a query and a key that it sees, else 0; undefined where all are seen. */
function seenPairs(
  mask: Tensor | undefined,
  { mask: kind, isCausal }: AttentionAttrs,
  tq: number,
  tk: number,
): Tensor | undefined {
  const causal = isCausal ? tril(ones([tq, tk])) : undefined
  if (!mask) return causal
  const visible =
    kind === 'additive' ? mask.gt(lowestScore) : kind === 'hidden' ? mask.eq(0) : mask.ne(0)
  return causal ? visible.mul(causal) : visible
}

/** The n-th projection (0 queries, 1 keys, 2 values) as [batch, heads, t, d]. */
function byHeads(
  projections: readonly Tensor[],
  n: number,
  { layout, batch, heads, keyHeads = heads, isSequenceFirst }: AttentionAttrs,
  t: number,
  d: number,
): Tensor {
  const count = n === 0 ? heads : keyHeads
  if (layout === 'heads') return projections[n].reshape([batch, count, t, d])
  const first = n === 0 ? 0 : heads + (n - 1) * keyHeads
  const own = layout === 'packed' ? projections[0].narrow(-1, first * d, count * d) : projections[n]
  return isSequenceFirst
    ? own.reshape([t, batch, count, d]).permute(1, 2, 0, 3)
    : own.reshape([batch, t, count, d]).permute(0, 2, 1, 3)
}

/** Probabilities after the op's own dropout, which numbers the pairs of a sample by rows of a multiple of 4 keys. */
function dropped(probabilities: Tensor, attrs: AttentionAttrs, keys: number): Tensor {
  if (!attrs.dropout || probabilities.count === 0) return probabilities
  const more = -keys & (keysPerDraw - 1)
  const wide = pad(probabilities, [0, more])
  return emit(dropout, [wide], { ...attrs.dropout, samples: attrs.batch }).narrow(-1, 0, keys)
}
