import { ShapeError, TabringError } from '../../util/errors.ts'
import {
  countElements,
  formatShape,
  type Shape,
  sameShape,
  type TensorType,
  tensorType,
} from '../../util/shape.ts'
import { storedAs } from '../half.ts'
import { converted } from '../map/map.ts'
import {
  type Case,
  defineOp,
  type HostArray,
  type KernelLimits,
  type Op,
  type OpCall,
} from '../op.ts'
import { maskKeyOf, randomScalars } from '../random/masks.ts'
import { attentionGradReference, attentionReference } from './attention.ref.ts'
import { directBackward, directForward, fitsDirect } from './direct.ts'
import { flashBackward, flashForward, gradProjections, maxRow } from './flash.ts'
import {
  type AttentionAttrs,
  type AttentionSizes,
  attentionSizes,
  checkMask,
  projectionsOf,
} from './geometry.ts'
import { naiveBackward, naiveForward } from './naive.ts'

export type { AttentionAttrs }

/** Sizes and mask of a call whose projections begin at input `first`. */
function problemOf(
  op: string,
  call: Pick<OpCall<AttentionAttrs>, 'inputs' | 'attrs'>,
  first: number,
) {
  const { inputs, attrs } = call
  const projections = projectionsOf(attrs.layout)
  const o = first === gradProjections ? inputs[1] : undefined
  const sizes = attentionSizes(op, inputs.slice(first, first + projections), attrs, o)
  const mask: TensorType | undefined = inputs[first + projections]
  return { sizes, mask, attrs }
}

/** Returns whether rows fit into registers and nothing is empty. */
const fitsFlash = ({ batch, heads, tq, tk, d }: AttentionSizes) =>
  d <= maxRow && batch * heads * tq * tk * d > 0

/** Operations of one product of queries and keys, or of probabilities and values; a causal mask leaves half of them. */
const productFlops = ({ batch, heads, tq, tk, d }: AttentionSizes, { isCausal }: AttentionAttrs) =>
  (2 * batch * heads * tq * tk * d) / (isCausal ? 2 : 1)

/** Returns whether `direct` can run a call: as `flash`, in float32, with rows enough for an invocation to own several. */
function runsDirect(call: OpCall<AttentionAttrs>, first: number): boolean {
  const { sizes, attrs } = problemOf('attention', call, first)
  return fitsFlash(sizes) && !sizes.isHalf && fitsDirect(attrs) && sizes.tq >= 5
}

/** The fixed table: on a CPU loads cost most, on a GPU staging them in workgroup memory pays. */
const preferredFrom =
  (first: number) =>
  (call: OpCall<AttentionAttrs>, limits: KernelLimits): string => {
    if (limits.isSoftware && runsDirect(call, first)) return 'direct'
    return fitsFlash(problemOf('attention', call, first).sizes) ? 'flash' : 'naive'
  }

/** The reference's view of a call. */
function referenceProblem(
  inputs: readonly HostArray[],
  call: OpCall<AttentionAttrs>,
  first: number,
  scalars: readonly number[],
) {
  const { sizes, mask, attrs } = problemOf('attention', call, first)
  const isPacked = attrs.layout === 'packed'
  const projections = [0, 1, 2].map((n) => inputs[first + (isPacked ? 0 : n)])
  const maskAt = first + projectionsOf(attrs.layout)
  return {
    attrs,
    sizes,
    projections: projections as [HostArray, HostArray, HostArray],
    mask: mask && { values: inputs[maskAt], shape: mask.shape },
    maskKey: attrs.dropout ? maskKeyOf(scalars, attrs.dropout.random) : undefined,
  }
}

const attrsOf = (
  layout: AttentionAttrs['layout'],
  batch: number,
  heads: number,
  more: Partial<AttentionAttrs> = {},
): AttentionAttrs => ({
  layout,
  batch,
  heads,
  scale: 0.25,
  isCausal: false,
  mask: null,
  dropout: null,
  ...more,
})

const three = (q: Shape, k: Shape = q) => [tensorType(q), tensorType(k), tensorType(k)]

const cases: readonly Case<AttentionAttrs>[] = [
  { name: 'one element', inputs: three([1, 1, 1, 1]), attrs: attrsOf('heads', 1, 1) },
  {
    name: 'heads 2x2, 5 queries, 7 keys of 3',
    inputs: three([2, 2, 5, 3], [2, 2, 7, 3]),
    attrs: attrsOf('heads', 2, 2),
  },
  {
    name: 'heads, causal, several tiles',
    inputs: three([1, 2, 70, 8]),
    attrs: attrsOf('heads', 1, 2, { isCausal: true }),
  },
  {
    name: 'causal, more keys than queries',
    inputs: three([1, 1, 4, 6], [1, 1, 9, 6]),
    attrs: attrsOf('heads', 1, 1, { isCausal: true }),
  },
  {
    name: 'causal, more queries than keys',
    inputs: three([1, 1, 9, 4], [1, 1, 3, 4]),
    attrs: attrsOf('heads', 1, 1, { isCausal: true }),
  },
  {
    name: 'tokens 2x5 to 2x11, 3 heads of 4',
    inputs: three([10, 12], [22, 12]),
    attrs: attrsOf('tokens', 2, 3),
  },
  {
    name: 'packed 2x9, 2 heads of 8, causal',
    inputs: [tensorType([18, 48])],
    attrs: attrsOf('packed', 2, 2, { isCausal: true, scale: 8 ** -0.5 }),
  },
  {
    name: 'tokens 5x2 to 3x2, positions before samples',
    inputs: three([5, 2, 12], [3, 2, 12]),
    attrs: attrsOf('tokens', 2, 3, { isSequenceFirst: true }),
  },
  {
    name: 'packed 1x66, 2 heads of 6',
    inputs: [tensorType([1, 66, 36])],
    attrs: attrsOf('packed', 1, 2),
  },
  {
    name: 'heads 2x6 that share 2, 5 queries, 7 keys of 3',
    inputs: three([2, 6, 5, 3], [2, 2, 7, 3]),
    attrs: attrsOf('heads', 2, 6, { keyHeads: 2 }),
  },
  {
    name: 'heads that share one, causal, several tiles',
    inputs: three([1, 3, 70, 8], [1, 1, 70, 8]),
    attrs: attrsOf('heads', 1, 3, { keyHeads: 1, isCausal: true }),
  },
  {
    name: 'tokens 2x9, 4 heads of 8 that share 2, causal, dropout',
    inputs: three([18, 32], [18, 16]),
    attrs: attrsOf('tokens', 2, 4, {
      keyHeads: 2,
      isCausal: true,
      dropout: { p: 0.3, layer: 4, random: { slot: 0 } },
    }),
    scalars: randomScalars(5, 6, 7),
  },
  {
    name: 'packed 2x6, 4 heads of 4 that share 2, a boolean mask by heads',
    inputs: [tensorType([12, 32]), tensorType([4, 6, 6], 'i32')],
    attrs: attrsOf('packed', 2, 4, { keyHeads: 2, mask: 'boolean' }),
    integerBelow: { 1: 2 },
  },
  {
    name: 'rows of 130, heads that share',
    inputs: three([1, 2, 3, 130], [1, 1, 3, 130]),
    attrs: attrsOf('heads', 1, 2, { keyHeads: 1, scale: 130 ** -0.5 }),
  },
  {
    name: 'f16 tokens 2x5, 4 heads of 4 that share 2',
    inputs: three([10, 16], [10, 8]).map(({ shape }) => tensorType(shape, 'f16')),
    attrs: attrsOf('tokens', 2, 4, { keyHeads: 2 }),
  },
  {
    name: 'f16 packed 5, 4 heads of 4 that share 2, to f16',
    inputs: [tensorType([5, 32], 'f16')],
    attrs: attrsOf('packed', 1, 4, { keyHeads: 2, half: true }),
  },
  {
    name: 'rows of 36, a tile of 16',
    inputs: [tensorType([20, 108])],
    attrs: attrsOf('packed', 1, 1, { isCausal: true }),
  },
  {
    name: 'rows of 130, beyond the registers',
    inputs: three([1, 1, 3, 130]),
    attrs: attrsOf('heads', 1, 1, { scale: 130 ** -0.5 }),
  },
  {
    name: 'an added mask by key',
    inputs: [...three([2, 2, 6, 4]), tensorType([2, 1, 1, 6])],
    attrs: attrsOf('heads', 2, 2, { mask: 'additive' }),
    // A mask has no gradient, so that cases with an f32 one are kept from gradients.spec.ts by their fill.
    fill: 'ties',
  },
  {
    name: 'a boolean mask, rows that see nothing',
    inputs: [tensorType([12, 24]), tensorType([6, 6], 'i32')],
    attrs: attrsOf('packed', 2, 2, { mask: 'boolean' }),
    integerBelow: { 1: 2 },
  },
  {
    name: 'a mask of hidden keys',
    inputs: [tensorType([10, 24]), tensorType([2, 1, 1, 5], 'i32')],
    attrs: attrsOf('packed', 2, 2, { mask: 'hidden' }),
    integerBelow: { 1: 2 },
  },
  {
    name: 'a boolean mask that hides all',
    inputs: [tensorType([6, 12]), tensorType([6, 1], 'i32')],
    attrs: attrsOf('packed', 1, 1, { mask: 'boolean', isCausal: true }),
    integerBelow: { 1: 1 },
  },
  {
    name: 'dropout',
    inputs: [tensorType([14, 24])],
    attrs: attrsOf('packed', 2, 2, {
      isCausal: true,
      dropout: { p: 0.3, layer: 4, random: { slot: 0 } },
    }),
    scalars: randomScalars(5, 6, 7),
  },
  {
    name: 'dropout and a mask by heads',
    inputs: [...three([1, 2, 6, 4], [1, 2, 5, 4]), tensorType([2, 6, 5])],
    attrs: attrsOf('heads', 1, 2, {
      mask: 'additive',
      dropout: { p: 0.5, layer: 1, random: { slot: 1 } },
    }),
    scalars: [0, ...randomScalars(1, 0, 0)],
    fill: 'ties',
  },
  {
    name: 'f16 packed 2x9, 2 heads of 8, causal',
    inputs: [tensorType([18, 48], 'f16')],
    attrs: attrsOf('packed', 2, 2, { isCausal: true, scale: 8 ** -0.5 }),
  },
  {
    name: 'f16 packed 1x5, 2 heads of 4, to f16',
    inputs: [tensorType([5, 24], 'f16')],
    attrs: attrsOf('packed', 1, 2, { half: true }),
  },
  {
    name: 'f16 heads 2x2, 5 queries, 7 keys of 3',
    inputs: three([2, 2, 5, 3], [2, 2, 7, 3]).map(({ shape }) => tensorType(shape, 'f16')),
    attrs: attrsOf('heads', 2, 2),
  },
  { name: 'no samples', inputs: three([0, 2, 5, 4]), attrs: attrsOf('heads', 0, 2) },
  { name: 'no keys', inputs: three([1, 2, 3, 4], [1, 2, 0, 4]), attrs: attrsOf('heads', 1, 2) },
  { name: 'no queries', inputs: three([1, 2, 0, 4], [1, 2, 3, 4]), attrs: attrsOf('heads', 1, 2) },
  {
    name: 'ties',
    inputs: three([1, 2, 6, 4]),
    attrs: attrsOf('heads', 1, 2, { isCausal: true }),
    fill: 'ties',
  },
]

/**
 * o = softmax(scale * q k^T + mask) v for each head, and lse [batch, heads, tq], each row's log of the sum of exponentials.
 *
 * Inputs: queries, keys, values (one tensor where packed), mask?. A row that sees no key gives 0.
 */
export const attention: Op<AttentionAttrs> = defineOp<AttentionAttrs>({
  name: 'attention',
  takesHalf: true,
  infer(inputs, attrs) {
    const { sizes, mask } = problemOf('attention', { inputs, attrs }, 0)
    checkMask('attention', mask, attrs, sizes)
    return [
      tensorType(sizes.output, attrs.half ? 'f16' : 'f32'),
      tensorType([sizes.batch, sizes.heads, sizes.tq]),
    ]
  },
  // Rows of whole words.
  givesHalf: (call) => problemOf('attention', call, 0).sizes.d % 4 === 0,
  variants: [
    {
      name: 'naive',
      lower(call) {
        const { sizes, mask, attrs } = problemOf('attention', call, 0)
        return naiveForward(sizes, attrs, mask)
      },
    },
    {
      name: 'flash',
      when: (call) => fitsFlash(problemOf('attention', call, 0).sizes),
      lower(call) {
        const { sizes, mask, attrs } = problemOf('attention', call, 0)
        return flashForward(sizes, attrs, mask)
      },
    },
    {
      name: 'direct',
      when: (call) => runsDirect(call, 0),
      lower(call) {
        const { sizes, mask, attrs } = problemOf('attention', call, 0)
        return directForward(sizes, attrs, mask)
      },
    },
  ],
  preferred: preferredFrom(0),
  gradient(context) {
    const { inputs, outputs, outputGradients, attrs } = context
    const projections = projectionsOf(attrs.layout)
    if (inputs.length > projections && context.needs(projections)) {
      throw new TabringError(
        'graph.misuse',
        'attention: only an added mask that requires its gradient from the start can get one, got a boolean mask that depends on a parameter, or requiresGrad_() came later. Detach a boolean mask; call requiresGrad_() before attention.',
      )
    }
    const [given] = outputGradients
    if (!given) return inputs.map(() => undefined)
    const dy = converted(context, given, 'f32')
    const { half: _, ...others } = attrs
    return context.emit(attentionGrad, [dy, ...outputs, ...inputs], others)
  },
  flops: (call) => 2 * productFlops(problemOf('attention', call, 0).sizes, call.attrs),
  reference(inputs, call, scalars) {
    const [o, lse] = attentionReference(referenceProblem(inputs, call, 0, scalars))
    return [storedAs(call.attrs, o), lse]
  },
  tolerance: {
    absolute: 2e-6,
    relative: 1e-5,
    because:
      'exponentials of a few ULP of differences of scores up to some tens, sums over keys in f32',
  },
  cases: [
    ...cases,
    {
      name: 'huge',
      inputs: three([1, 2, 5, 3]),
      attrs: attrsOf('heads', 1, 2),
      fill: 'huge',
    },
  ],
})

/** Gradients by the projections. Inputs: dy, o, lse, then those of attention. */
export const attentionGrad: Op<AttentionAttrs> = defineOp<AttentionAttrs>({
  name: 'attentionGrad',
  takesHalf: true,
  infer(inputs, attrs) {
    const { sizes, mask } = problemOf('attentionGrad', { inputs, attrs }, gradProjections)
    checkMask('attentionGrad', mask, attrs, sizes)
    const [dy, o, lse] = inputs
    const isFloat = dy.dtype === 'f32' && lse.dtype === 'f32' && ['f32', 'f16'].includes(o.dtype)
    const rows = [sizes.batch, sizes.heads, sizes.tq]
    if (
      !isFloat ||
      !sameShape(dy.shape, sizes.output) ||
      !sameShape(o.shape, sizes.output) ||
      !sameShape(lse.shape, rows)
    ) {
      throw new ShapeError(
        'shape.mismatch',
        `attentionGrad: dy and o must be ${formatShape(sizes.output)} and lse ${formatShape(rows)}, all f32 (o may be f16), got ${[dy, o, lse].map(({ shape, dtype }) => `${dtype}${formatShape(shape)}`).join(', ')}. Pass the forward op's outputs unchanged.`,
      )
    }
    return inputs
      .slice(gradProjections, gradProjections + projectionsOf(attrs.layout))
      .map(({ shape }, n) => tensorType(shape, attrs.half && n === 0 ? 'f16' : 'f32'))
  },
  givesHalf: (call) =>
    call.outputs.length === 1 &&
    problemOf('attentionGrad', call, gradProjections).sizes.d % 4 === 0,
  variants: [
    {
      name: 'naive',
      lower(call) {
        const { sizes, mask, attrs } = problemOf('attentionGrad', call, gradProjections)
        return naiveBackward(sizes, attrs, mask)
      },
    },
    {
      name: 'flash',
      when: (call) => fitsFlash(problemOf('attentionGrad', call, gradProjections).sizes),
      lower(call) {
        const { sizes, mask, attrs } = problemOf('attentionGrad', call, gradProjections)
        return flashBackward(sizes, attrs, mask)
      },
    },
    {
      name: 'direct',
      when: (call) => runsDirect(call, gradProjections),
      lower(call) {
        const { sizes, mask, attrs } = problemOf('attentionGrad', call, gradProjections)
        return directBackward(sizes, attrs, mask)
      },
    },
  ],
  /** The scores again, then products for dv, dp, dq and dk. */
  flops: (call) =>
    5 * productFlops(problemOf('attentionGrad', call, gradProjections).sizes, call.attrs),

  preferred: preferredFrom(gradProjections),
  reference(inputs, call, scalars) {
    const [dy, o, lse] = inputs
    const gradients = call.outputs.map(({ shape }) => new Float64Array(countElements(shape)))
    const [dq, dk = dq, dv = dq] = gradients
    const problem = referenceProblem(inputs, call, gradProjections, scalars)
    attentionGradReference(problem, dy, o, lse, [dq, dk, dv])
    return [storedAs(call.attrs, dq), ...gradients.slice(1)]
  },
  tolerance: {
    absolute: 2e-4,
    relative: 1e-4,
    because:
      'the cases draw lse freely, so exponentials reach some hundreds; sums over rows of their products cancel in f32',
  },
  cases: cases.map(({ inputs, attrs, integerBelow, ...rest }) => {
    const { output, batch, heads, tq } = attentionSizes(
      'attention',
      inputs.slice(0, projectionsOf(attrs.layout)),
      attrs,
    )
    return {
      ...rest,
      inputs: [
        tensorType(output),
        tensorType(output, attrs.half ? 'f16' : 'f32'),
        tensorType([batch, heads, tq]),
        ...inputs,
      ],
      attrs,
      ...(integerBelow && {
        integerBelow: Object.fromEntries(
          Object.entries(integerBelow).map(([at, below]) => [Number(at) + gradProjections, below]),
        ),
      }),
    }
  }),
})
