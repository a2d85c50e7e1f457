import { attention } from '../../kernels/attention/attention.ts'
import type { AttentionAttrs, AttentionLayout } from '../../kernels/attention/geometry.ts'
import { calledAs } from '../../util/called-as.ts'
import { ShapeError } from '../../util/errors.ts'
import {
  checkArgument,
  checkFlags,
  checkNumber,
  checkOptions,
  isShare,
  type OptionNames,
} from '../../util/options.ts'
import { broadcastShapes, countElements, formatShape, type Shape } from '../../util/shape.ts'
import { requiresGradient } from '../trace/backward.ts'
import { functionalLayer, randomSlots } from '../trace/random.ts'
import { emitAll, mustBeTensor, type Tensor, toFloat } from '../trace/tensor.ts'
import { mustBeFloat } from '../trace/tensor-arguments.ts'
import { activeTrace } from '../trace/trace.ts'
import { holdsTruths } from './boolean-mask.ts'
import { composedAttention } from './composed-attention.ts'

export interface AttentionOptions {
  /**
   * A mask that broadcasts to [batch, heads, queries, keys]. Integers and results of comparisons: 0 where a key is masked. Other f32: added
   * to the scores (below -1e30 a key is masked), unless `isBooleanMask`. A mask that requires a gradient (a learned mask, a relative
   * position bias) gets one; memory then grows with queries times keys.
   */
  attnMask?: Tensor
  /** True if an f32 mask holds 0 and 1; default: whether it is the result of comparisons. */
  isBooleanMask?: boolean
  /** True if an integer mask is nonzero where a key is masked, as in torch.nn.MultiheadAttention. */
  isExclusionMask?: boolean
  /** Fraction of probabilities to drop; default 0. */
  dropoutP?: number
  /** Distinguishes the dropout masks of one step; default: the number of this call in the traced function. */
  maskIndex?: number
  /** True if query i sees only keys 0 to i. */
  isCausal?: boolean
  /** Factor of the scores; default 1 / sqrt(elements of a query). */
  scale?: number
  /**
   * True if keys and values may have fewer heads than queries, whose number is then a multiple of theirs: neighbouring heads of queries
   * share one. They are never repeated in memory.
   */
  enableGqa?: boolean
}

const attentionOptions: OptionNames<AttentionOptions> = {
  attnMask: true,
  isBooleanMask: true,
  isExclusionMask: true,
  dropoutP: true,
  maskIndex: 'number',
  isCausal: true,
  scale: true,
  enableGqa: true,
}

function checkAttention(where: string, options: AttentionOptions): void {
  checkOptions(where, options, attentionOptions)
  mustBeTensor(where, {}, { attnMask: options.attnMask })
  for (const name of ['isBooleanMask', 'isExclusionMask'] as const) {
    const isUsed = options.attnMask || !options[name]
    checkArgument(where, name, options[name], Boolean(isUsed), 'left out without attnMask')
  }
  checkNumber(where, 'dropoutP', options.dropoutP, isShare, 'within 0..1')
  checkNumber(where, 'scale', options.scale, Number.isFinite, 'a finite number')
  checkFlags(where, options, 'isCausal', 'isBooleanMask', 'isExclusionMask', 'enableGqa')
}

const dropoutOf = (options: AttentionOptions, batch: number): AttentionAttrs['dropout'] =>
  options.dropoutP
    ? {
        p: options.dropoutP,
        layer: options.maskIndex ?? functionalLayer('attention'),
        random: randomSlots('attention', batch),
      }
    : null

/** Returns whether a mask is what torch has as bool: integers, or what comparisons gave. */
export const isBoolean = ({ dtype, value }: Tensor): boolean =>
  (dtype !== 'f32' && dtype !== 'f16') || holdsTruths(value)

function maskOf(options: AttentionOptions): AttentionAttrs['mask'] {
  const { attnMask, isBooleanMask, isExclusionMask } = options
  if (!attnMask) return null
  if (isExclusionMask) return 'hidden'
  return (isBooleanMask ?? isBoolean(attnMask)) ? 'boolean' : 'additive'
}

/** Emits the op on queries, keys and values (one tensor where packed) that lie as `layout` says. */
export function attend(
  projections: readonly Tensor[],
  layout: AttentionLayout,
  sizes: {
    batch: number
    heads: number
    keyHeads?: number
    width: number
    isSequenceFirst?: boolean
  },
  options: AttentionOptions,
): Tensor {
  const { keyHeads = sizes.heads } = sizes
  const trace = activeTrace('attention')
  const isHalf = trace.isAutocast || projections.every(({ dtype }) => dtype === 'f16')
  // Rows of whole words are stored as f16 at once, and backward reads them so.
  const half = isHalf && sizes.width > 0 && sizes.width % 4 === 0
  const attrs: AttentionAttrs = {
    layout,
    batch: sizes.batch,
    heads: sizes.heads,
    ...(keyHeads !== sizes.heads && { keyHeads }),
    ...(sizes.isSequenceFirst && { isSequenceFirst: true }),
    scale: options.scale ?? sizes.width ** -0.5,
    isCausal: options.isCausal ?? false,
    mask: maskOf(options),
    dropout: dropoutOf(options, sizes.batch),
    ...(half && { half }),
  }
  const operands = projections.map((x) => (isHalf ? x.half() : toFloat(x)))
  const mask = options.attnMask && toFloat(options.attnMask)
  const isLearned = attrs.mask === 'additive' && mask && requiresGradient(trace, mask.value)
  const [, key, value] = operands
  const isUneven = layout === 'heads' && key.shape.at(-1) !== value.shape.at(-1)
  if (isLearned || isUneven) return composedAttention(operands, mask, attrs)
  const [output] = emitAll(attention, mask ? [...operands, mask] : operands, attrs)
  return isHalf ? output.half() : output
}

/** Returns the number of heads of keys and values; undefined where there is no axis of heads. errors: `shape.mismatch`. */
function sharedHeads(where: string, given: readonly Tensor[]): number | undefined {
  if (given.every(({ shape }) => shape.length < 4)) return undefined
  const [heads, keyHeads, valueHeads] = given.map(({ shape }) => shape.at(-3) ?? 1)
  if (keyHeads === valueHeads && (heads === keyHeads || heads % keyHeads === 0)) return keyHeads
  throw new ShapeError(
    'shape.mismatch',
    `${where}: with enableGqa, the heads of query must be a multiple of those of key and value, got ${given.map(({ shape }) => formatShape(shape)).join(', ')}. Heads are dimension -3.`,
  )
}

/**
 * Returns softmax(scale * query key^T + mask) value, by heads.
 *
 * shape: query [..., H, L, E], key [..., H, S, E], value [..., H, S, V] -> [..., H, L, V]; 3 dimensions are one head, 2 one sample of it.
 * Axes before the last two broadcast; with `enableGqa`, those before the last three.
 * cost: scores are not stored, so memory grows only with L; forward and backward process all pairs (causal: half of them). With a mask that
 * requires a gradient, or with values of another width than the keys, scores and probabilities are stored and memory grows with L * S.
 * Broadcast inputs are copied to their full size.
 * A query that sees no key gives 0. Rows of more than 128 elements use a slow kernel.
 * source: torch.nn.functional.scaled_dot_product_attention; Dao et al., arXiv 2205.14135.
 */
export function scaledDotProductAttention(
  query: Tensor,
  key: Tensor,
  value: Tensor,
  options: AttentionOptions = {},
): Tensor {
  const where = 'scaledDotProductAttention'
  mustBeTensor(where, { query, key, value })
  checkAttention(where, options)
  const given = [query, key, value]
  const [width, keyWidth] = [query, key].map(({ shape }) => shape[shape.length - 1])
  const areEqual = width === keyWidth && key.shape.at(-2) === value.shape.at(-2)
  if (given.some(({ shape }) => shape.length < 2) || !areEqual) {
    throw new ShapeError(
      'shape.mismatch',
      `${where}: query and key must be [..., length, width] with the same width, value as long as key, got ${given.map(({ shape }) => formatShape(shape)).join(', ')}. Check the order of the dimensions.`,
    )
  }
  mustBeFloat(where, ...given)
  const keyHeads = options.enableGqa ? sharedHeads(where, given) : undefined
  const own = keyHeads === undefined ? -2 : -3
  const leading = given.reduce<Shape>(
    (all, { shape }) => broadcastShapes(where, all, shape.slice(0, own)),
    [],
  )
  const operands = given.map((x) => x.expand([...leading, ...x.shape.slice(own)]))
  const outer = operands[0].shape.slice(0, -2)
  const heads = outer.length > 1 ? outer[outer.length - 1] : 1
  const batch = countElements(outer.length > 1 ? outer.slice(0, -1) : outer)
  return calledAs(where, 'attention', () =>
    attend(operands, 'heads', { batch, heads, keyHeads, width }, options),
  )
}

/**
 * Returns self-attention on concatenated queries, keys and values, as one projection computes them: no split, no transpose.
 *
 * shape: qkv [batch * T, 3 * heads * E] or [batch, T, 3 * heads * E] -> the same with heads * E
 */
export function packedAttention(
  qkv: Tensor,
  sizes: { batch: number; heads: number },
  options: AttentionOptions = {},
): Tensor {
  mustBeTensor('packedAttention', { qkv })
  checkAttention('packedAttention', options)
  checkOptions('packedAttention', sizes, { batch: 'number', heads: 'size' }, 'sizes')
  const width = qkv.shape[qkv.shape.length - 1] / (3 * sizes.heads)
  return calledAs('packedAttention', 'attention', () =>
    attend([qkv], 'packed', { ...sizes, width }, options),
  )
}
