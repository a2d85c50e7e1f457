import { ShapeError } from '../../util/errors.ts'
import {
  countElements,
  formatShape,
  type Shape,
  sameShape,
  type TensorType,
} from '../../util/shape.ts'
import type { HalfAttrs } from '../op.ts'
import type { RandomSlots } from '../random/masks.ts'
import { chainShape } from '../steps.ts'

/**
 * How queries, keys and values lie in memory.
 *
 * `heads`: each [..., T, D], the product of the leading dimensions being batch * heads. `tokens`: each [..., heads * D], rows being
 * batch * T. `packed`: one tensor [..., 3 * heads * D] with queries, keys and values side by side, rows being batch * T. Keys and values
 * may have fewer heads.
 */
export type AttentionLayout = 'heads' | 'tokens' | 'packed'

/** With `half`, o is f16, or the gradient of packed projections. */
export interface AttentionAttrs extends HalfAttrs {
  readonly layout: AttentionLayout
  readonly batch: number
  readonly heads: number
  /** Heads of keys and values, a divisor of `heads`; each serves as many neighbouring heads of queries. Default: `heads`. */
  readonly keyHeads?: number
  /** For `tokens` and `packed`: whether rows are T * batch (PyTorch's default for its modules) instead of batch * T. */
  readonly isSequenceFirst?: boolean
  /** Factor of the scores. */
  readonly scale: number
  /** True if query i sees keys 0 to i alone. */
  readonly isCausal: boolean
  /** What the mask, if there is one, means: added to the scores; 0 where a key is not seen; not 0 where it is not seen. */
  readonly mask: 'additive' | 'boolean' | 'hidden' | null
  /** Drops probabilities, or null. */
  readonly dropout: {
    readonly p: number
    readonly layer: number
    readonly random: RandomSlots
  } | null
}

export interface AttentionSizes {
  readonly batch: number
  readonly heads: number
  /** Heads of keys and values, and how many heads of queries each serves. */
  readonly keyHeads: number
  readonly group: number
  /** Queries and keys of one head. */
  readonly tq: number
  readonly tk: number
  /** Elements of one query. */
  readonly d: number
  /** True if queries, keys and values are f16. */
  readonly isHalf: boolean
  /** True if o is f16. */
  readonly isOutputHalf: boolean
  /** The shape of the output. */
  readonly output: Shape
}

/** How many of the call's first inputs are queries, keys and values. */
export const projectionsOf = (layout: AttentionLayout): number => (layout === 'packed' ? 1 : 3)

const fail = (op: string, attrs: AttentionAttrs, inputs: readonly TensorType[], what: string) =>
  new ShapeError(
    'shape.mismatch',
    `${op}: ${what}, got ${inputs.map(({ shape, dtype }) => `${dtype}${formatShape(shape)}`).join(', ')} for batch ${attrs.batch} and ${attrs.heads} heads. Check the order of the dimensions.`,
  )

/** The sizes of a call whose queries, keys and values are `inputs`, and its output `o` where that is not as attrs say. errors: `shape.mismatch`. */
export function attentionSizes(
  op: string,
  inputs: readonly TensorType[],
  attrs: AttentionAttrs,
  o?: TensorType,
): AttentionSizes {
  const { layout, batch, heads, keyHeads = heads } = attrs
  const group = heads === keyHeads ? 1 : heads / keyHeads
  const [q, k, v] = inputs
  const isHalf = q.dtype === 'f16'
  const isOutputHalf = o ? o.dtype === 'f16' : (attrs.half ?? false)
  if (inputs.some(({ dtype }) => dtype !== (isHalf ? 'f16' : 'f32'))) {
    throw fail(op, attrs, inputs, 'queries, keys and values must all be f32, or all f16')
  }
  if (!Number.isInteger(group))
    throw fail(op, attrs, inputs, `${keyHeads} heads of keys must divide those of queries`)
  const last = ({ shape }: TensorType) => shape[shape.length - 1] ?? 1
  const exact = (count: number, divisor: number): number => {
    if (divisor === 0) return 0
    if (count % divisor !== 0) throw fail(op, attrs, inputs, 'batch and heads must divide the rows')
    return count / divisor
  }
  if (layout === 'packed') {
    const width = last(q)
    const d = exact(width, heads + 2 * keyHeads)
    const t = exact(exact(countElements(q.shape), width), batch)
    const output = [...q.shape.slice(0, -1), heads * d]
    return { batch, heads, keyHeads, group, tq: t, tk: t, d, isHalf, isOutputHalf, output }
  }
  const isTokens = layout === 'tokens'
  const d = isTokens ? exact(last(q), heads) : last(q)
  if (!sameShape(k.shape, v.shape) || last(k) !== (isTokens ? keyHeads * d : d)) {
    throw fail(
      op,
      attrs,
      inputs,
      'keys and values must have the same shape, and all three rows of the same width by head',
    )
  }
  return {
    batch,
    heads,
    keyHeads,
    group,
    tq: exact(countElements(q.shape), batch * heads * d),
    tk: exact(countElements(k.shape), batch * keyHeads * d),
    d,
    isHalf,
    isOutputHalf,
    output: q.shape,
  }
}

/** errors: `shape.mismatch` unless the mask broadcasts to [batch, heads, tq, tk]. */
export function checkMask(
  op: string,
  mask: TensorType | undefined,
  attrs: AttentionAttrs,
  { batch, heads, tq, tk }: AttentionSizes,
): void {
  const full = [batch, heads, tq, tk]
  if (
    (mask !== undefined) !== (attrs.mask !== null) ||
    (mask && !sameShape(chainShape(`${op} mask`, [mask.shape, full]), full)) ||
    (attrs.mask === 'additive' && mask?.dtype !== 'f32')
  ) {
    throw new ShapeError(
      'shape.mismatch',
      `${op}: expected a mask that broadcasts to ${formatShape(full)}, f32 if it is added, got ${mask ? `${mask.dtype}${formatShape(mask.shape)}` : 'none'}. Reshape it.`,
    )
  }
}

/** A tensor's rows: where row t of head h of sample b begins. */
export interface RowPlace {
  /** Rows (of d elements) from one sample to the next, one head to the next, one position to the next, and of the first. */
  readonly batch: number
  readonly head: number
  readonly position: number
  readonly first: number
  /** How many neighbouring heads of queries have the same head of this tensor. */
  readonly group: number
}

/** Places of rows of `wide` heads a position, `first` of them before the tensor's own. */
const tokenPlace = (
  { isSequenceFirst = false }: AttentionAttrs,
  { batch }: AttentionSizes,
  t: number,
  wide: number,
  first: number,
  group: number,
): RowPlace =>
  isSequenceFirst
    ? { batch: wide, head: 1, position: batch * wide, first, group }
    : { batch: t * wide, head: 1, position: wide, first, group }

/** Where rows of the n-th projection (0 queries, 1 keys, 2 values) lie. */
export function projectionPlace(attrs: AttentionAttrs, sizes: AttentionSizes, n: number): RowPlace {
  const { heads, keyHeads, tq, tk } = sizes
  const [t, own, group] = n === 0 ? [tq, heads, 1] : [tk, keyHeads, sizes.group]
  if (attrs.layout === 'heads') return { batch: own * t, head: t, position: 1, first: 0, group }
  return attrs.layout === 'packed'
    ? tokenPlace(attrs, sizes, t, heads + 2 * keyHeads, n && heads + (n - 1) * keyHeads, group)
    : tokenPlace(attrs, sizes, t, own, 0, group)
}

/** Where rows of the output and its gradient lie. */
export function outputPlace(attrs: AttentionAttrs, sizes: AttentionSizes): RowPlace {
  const { heads, tq } = sizes
  if (attrs.layout === 'heads')
    return { batch: heads * tq, head: tq, position: 1, first: 0, group: 1 }
  return tokenPlace(attrs, sizes, tq, heads, 0, 1)
}
