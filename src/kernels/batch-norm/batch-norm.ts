import { ShapeError } from '../../util/errors.ts'
import { formatShape, type Shape, type TensorType, tensorType } from '../../util/shape.ts'
import { countedRows, countedRowsWgsl } from '../counted-rows.ts'
import { storedAs } from '../half.ts'
import { gradientOfOutput } from '../map/map.ts'
import {
  type Case,
  defineOp,
  type GradientContext,
  type HalfAttrs,
  type HostArray,
  type Op,
  type OpCall,
  type ScalarSlot,
  type Value,
  type Variant,
} from '../op.ts'
import { dispatch, f32Literal, reads, type ShaderBinding, updates } from '../shader.ts'
import { applySteps, broadcastOffset, type Step } from '../steps.ts'
import {
  countedSizes,
  type NormSizes,
  normalizeReference,
  statisticsReference,
} from './batch-norm.ref.ts'
import { type BatchNormGradAttrs, batchNormGrad } from './batch-norm-grad.ts'
import { normalize, statistics, stripOf } from './kernels.ts'
import { needsTwo, normSizes } from './sizes.ts'

// Three ops, because what an op updates is fixed: batch statistics, the same with running statistics kept, and given statistics.

export interface BatchNormAttrs extends HalfAttrs {
  /** Added to the variance. */
  readonly eps: number
  /** Chain at the store: input 0 is the normalized value, inputs 1.. broadcast to y. */
  readonly epilogue: readonly Step[]
}

export interface OwnBatchNormAttrs extends BatchNormAttrs {
  /** How many of the first rows count in the statistics, a step scalar; null: all. */
  readonly count: ScalarSlot | null
}

export interface TrackedBatchNormAttrs extends OwnBatchNormAttrs {
  /** The share of the new statistics in the running ones; null: the mean over all batches so far. */
  readonly momentum: number | null
}

type Call<A extends BatchNormAttrs> = Pick<OpCall<A>, 'inputs' | 'attrs'>

const batchSizes = (op: string, { inputs: [x, weight, bias] }: Call<BatchNormAttrs>) => {
  const sizes = normSizes(op, x, [
    ['weight', weight],
    ['bias', bias],
  ])
  needsTwo(op, sizes, x)
  return sizes
}

const trackedSizes = (call: Call<TrackedBatchNormAttrs>) => {
  const [x, , , mean, variance, batches] = call.inputs
  normSizes('batchNormTracked', x, [
    ['runningMean', mean],
    ['runningVar', variance],
  ])
  if (batches.shape.length !== 0 || batches.dtype !== 'i32') {
    throw new ShapeError(
      'shape.mismatch',
      `batchNormTracked: numBatchesTracked must be i32[], got ${batches.dtype}${formatShape(batches.shape)}. Make it a scalar.`,
    )
  }
  return batchSizes('batchNormTracked', call)
}

/** Where mean and variance are when the kernel made them, and weight and bias by the order of inputs. */
const ownStatistics = {
  mean: { out: 1 },
  variance: { out: 2 },
  weight: { in: 1 },
  bias: { in: 2 },
} as const

function withEpilogue(
  values: Float64Array,
  { inputs, outputs: [y], attrs }: OpCall<BatchNormAttrs>,
  given: readonly HostArray[],
  first: number,
): Float64Array {
  return storedAs(
    attrs,
    values.map((value, at) =>
      applySteps(attrs.epilogue, [
        value,
        ...given
          .slice(first)
          .map((operand, k) => operand[broadcastOffset(y.shape, inputs[first + k].shape, at)]),
      ]),
    ),
  )
}

/** dx (in x's own dtype), dweight and dbias as one op; `mean` and `variance` are the batch's own or given ones. */
function gradients<A extends BatchNormAttrs>(
  context: GradientContext<A>,
  [mean, variance, weight]: readonly Value[],
  rows: Pick<BatchNormGradAttrs, 'isBatch' | 'count'>,
): Value[] {
  const dy = gradientOfOutput(context)
  if (!dy) return []
  const [x] = context.inputs
  const isHalf = x.type.dtype === 'f16'
  const attrs = { eps: context.attrs.eps, ...rows, ...(isHalf && { half: true }) }
  return context.emit(batchNormGrad, [dy, x, mean, variance, weight], attrs)
}

/** The same for an op that made mean and variance itself. */
const ownGradients = <A extends OwnBatchNormAttrs>(context: GradientContext<A>): Value[] =>
  gradients(context, [context.outputs[1], context.outputs[2], context.inputs[1]], {
    isBatch: true,
    count: context.attrs.count,
  })

/** Mean and variance of the rows that count, and their number of values a channel. */
function ownStatisticsReference(
  x: HostArray,
  sizes: NormSizes,
  { count }: OwnBatchNormAttrs,
  scalars: readonly number[],
) {
  const used = countedSizes(sizes, countedRows(sizes.N, count, scalars))
  const [mean, variance] = statisticsReference(x, used)
  return { mean, variance, M: used.M }
}

const variantsOf = <A extends BatchNormAttrs>(
  lower: (call: OpCall<A>, isNaive: boolean) => ReturnType<Variant<A>['lower']>,
): [Variant<A>, Variant<A>] => [
  { name: 'naive', lower: (call) => lower(call, true) },
  { name: 'strips', lower: (call) => lower(call, false) },
]

const naiveThreads = 64

const outputTypes = (
  [x]: readonly TensorType[],
  { half }: HalfAttrs,
  features: number,
): TensorType[] => [
  tensorType(x.shape, half ? 'f16' : 'f32'),
  tensorType([features]),
  tensorType([features]),
]

const relu = [{ fn: 'relu', args: [{ input: 0 }] }] as const
const residualRelu = [
  { fn: 'add', args: [{ input: 0 }, { input: 1 }] },
  { fn: 'relu', args: [{ step: 0 }] },
] as const

const tolerance = {
  absolute: 5e-6,
  relative: 4e-6,
  because: 'normalized values of order 1 from f32 sums; a few roundings each',
}

interface Sample {
  readonly name: string
  readonly x: Shape
  readonly eps?: number
  readonly epilogue?: readonly Step[]
  /** Shapes of the chain's operands. */
  readonly operands?: readonly Shape[]
  readonly momentum?: number | null
  readonly fill?: Case['fill']
  /** True if x and operands as large as it are f16, and y too. */
  readonly half?: boolean
  /** Scalar 1 says how many rows count. */
  readonly scalars?: readonly number[]
}

const samples: readonly Sample[] = [
  { name: 'one channel of two values', x: [2, 1] },
  { name: 'features of a linear layer, 70x33', x: [70, 33], momentum: 0.3 },
  { name: 'N C L, 3x5x7', x: [3, 5, 7], momentum: null },
  { name: 'planes in strips of 4, relu linked in', x: [3, 5, 6, 6], epilogue: relu },
  {
    name: 'residual and relu linked in, 9000 values a channel',
    x: [10, 3, 30, 30],
    epilogue: residualRelu,
    operands: [[10, 3, 30, 30]],
    momentum: null,
  },
  {
    name: 'a broadcast operand linked in',
    x: [2, 3, 4, 2],
    epilogue: [{ fn: 'mul', args: [{ input: 0 }, { input: 1 }] }],
    operands: [[3, 1, 2]],
  },
  { name: 'ties', x: [4, 6, 3], fill: 'ties' },
  { name: 'huge', x: [5, 4, 8], fill: 'huge' },
  { name: 'rows that do not count', x: [5, 3, 6, 6], scalars: [0, 3] },
  {
    name: 'the mean over batches, rows that do not count',
    x: [4, 3],
    scalars: [0, 2],
    momentum: null,
  },
  { name: 'one value counts', x: [2, 3], scalars: [0, 1] },
  { name: 'no row counts', x: [2, 3, 4], scalars: [0, 0] },
  { name: 'f16, 3x5x7, relu linked in', x: [3, 5, 7], epilogue: relu, half: true },
  {
    name: 'f16 in strips of 2, residual and relu linked in',
    x: [3, 2, 6],
    epilogue: residualRelu,
    operands: [[3, 2, 6]],
    half: true,
  },
]

const typesOf = ({ x, operands = [], half }: Sample) => {
  const typeOf = (shape: Shape) => tensorType(shape, half ? 'f16' : 'f32')
  return { x: typeOf(x), operands: operands.map(typeOf), attrs: half ? { half } : {} }
}

const casesOf = <A extends BatchNormAttrs>(
  more: (sample: Sample, features: TensorType) => { inputs: TensorType[]; attrs: object },
): Case<A>[] =>
  samples.map((sample) => {
    const features = tensorType([sample.x[1]])
    const { inputs, attrs } = more(sample, features)
    const types = typesOf(sample)
    return {
      name: sample.name,
      inputs: [types.x, features, features, ...inputs, ...types.operands],
      attrs: {
        ...types.attrs,
        eps: sample.eps ?? 1e-5,
        epilogue: sample.epilogue ?? [],
        count: sample.scalars ? { slot: 1 } : null,
        ...attrs,
      } as unknown as A,
      fill: sample.fill,
      scalars: sample.scalars,
    }
  })

/**
 * y = x [N,C,...] normalized by the mean and variance by channel of its rows that count, times weight [C], plus bias [C], then the
 * epilogue; further outputs are the mean and the biased variance. Gradients flow through y alone.
 *
 * cost: two dispatches; the statistics read x twice.
 * source: torch.nn.functional.batch_norm with training=True; Ioffe and Szegedy, arXiv 1502.03167.
 */
export const batchNorm: Op<OwnBatchNormAttrs> = defineOp<OwnBatchNormAttrs>({
  name: 'batchNorm',
  infer: (inputs, attrs) =>
    outputTypes(inputs, attrs, batchSizes('batchNorm', { inputs, attrs }).C),
  takesHalf: true,
  givesHalf: () => true,
  takesEpilogue: { operandsFrom: 3, bindings: 6 },
  variants: variantsOf<OwnBatchNormAttrs>((call, isNaive) => {
    const sizes = batchSizes('batchNorm', call)
    const { eps, epilogue, count } = call.attrs
    const strip = isNaive ? 1 : stripOf(sizes)
    return {
      dispatches: [
        ...statistics(call, sizes, isNaive ? naiveThreads : undefined, count, [], ''),
        ...normalize(sizes, eps, strip, ownStatistics, epilogue, 3, call),
      ],
    }
  }),
  gradient: ownGradients,
  reference(given, call, scalars) {
    const sizes = batchSizes('batchNorm', call)
    const [x, weight, bias] = given
    const { mean, variance } = ownStatisticsReference(x, sizes, call.attrs, scalars)
    const y = normalizeReference([x, mean, variance, weight, bias], sizes, call.attrs.eps)
    return [withEpilogue(y, call, given, 3), mean, variance]
  },
  tolerance,
  cases: casesOf<OwnBatchNormAttrs>(() => ({ inputs: [], attrs: {} })),
})

/** WGSL that moves the running statistics of channel c towards the batch's; one value has no variance, and moves nothing. */
function keepRunning({ momentum }: TrackedBatchNormAttrs): string {
  return [
    '  if (count < 2u) { return; }',
    momentum === null
      ? '  let share = 1.0 / f32(batches[0]);'
      : `  let share = ${f32Literal(momentum)};`,
    '  running_mean[c] = (1.0 - share) * running_mean[c] + share * mean_now;',
    '  let unbiased = variance_now * (f32(count) / f32(count - 1u));',
    '  running_variance[c] = (1.0 - share) * running_variance[c] + share * unbiased;',
    ...(momentum === null ? [] : ['  if (c == 0u) { batches[0] += 1; }']),
  ].join('\n')
}

/** The number of batches counts up in a separate dispatch where the statistics' workgroups read it. */
const countBatch = ({ N, L }: NormSizes, count: ScalarSlot | null) =>
  dispatch({
    label: 'batchNorm count',
    bindings: [
      updates('batches', { in: 5 }, 'i32'),
      ...(count ? [reads('scalars', 'scalars')] : []),
    ],
    constants: { R: N, L },
    body: [
      countedRowsWgsl(count),
      '@compute @workgroup_size(1)',
      'fn main() { batches[0] += i32(counted_rows() * L >= 2u); }',
    ].join('\n'),
    groups: [1, 1, 1],
  })

/**
 * batchNorm that also moves running mean [C] and (unbiased) variance [C] towards the batch's and counts the batch, i32 []. Where fewer
 * than two values a channel count, these stay as they are.
 *
 * source: torch.nn.BatchNorm2d in training.
 */
export const batchNormTracked: Op<TrackedBatchNormAttrs> = defineOp<TrackedBatchNormAttrs>({
  name: 'batchNormTracked',
  infer: (inputs, attrs) => outputTypes(inputs, attrs, trackedSizes({ inputs, attrs }).C),
  takesHalf: true,
  givesHalf: () => true,
  updates: [3, 4, 5],
  takesEpilogue: { operandsFrom: 6, bindings: 6 },
  variants: variantsOf<TrackedBatchNormAttrs>((call, isNaive) => {
    const sizes = trackedSizes(call)
    const { eps, epilogue, momentum, count } = call.attrs
    const batches: ShaderBinding =
      momentum === null ? reads('batches', { in: 5 }, 'i32') : updates('batches', { in: 5 }, 'i32')
    const running = [
      updates('running_mean', { in: 3 }),
      updates('running_variance', { in: 4 }),
      batches,
    ]
    const keep = keepRunning(call.attrs)
    const strip = isNaive ? 1 : stripOf(sizes)
    return {
      dispatches: [
        ...(momentum === null ? [countBatch(sizes, count)] : []),
        ...statistics(call, sizes, isNaive ? naiveThreads : undefined, count, running, keep),
        ...normalize(sizes, eps, strip, ownStatistics, epilogue, 6, call),
      ],
    }
  }),
  gradient: ownGradients,
  reference(given, call, scalars) {
    const sizes = trackedSizes(call)
    const [x, weight, bias, runningMean, runningVariance, batches] = given
    const { mean, variance, M } = ownStatisticsReference(x, sizes, call.attrs, scalars)
    const y = normalizeReference([x, mean, variance, weight, bias], sizes, call.attrs.eps)
    const result = [withEpilogue(y, call, given, 6), mean, variance]
    if (M < 2) return result
    batches[0]++
    const share = call.attrs.momentum ?? 1 / batches[0]
    for (let c = 0; c < sizes.C; c++) {
      const unbiased = (variance[c] * M) / (M - 1)
      runningMean[c] = (1 - share) * runningMean[c] + share * mean[c]
      runningVariance[c] = (1 - share) * runningVariance[c] + share * unbiased
    }
    return result
  },
  tolerance,
  cases: casesOf<TrackedBatchNormAttrs>(({ momentum = 0.1 }, features) => ({
    inputs: [features, features, tensorType([], 'i32')],
    attrs: { momentum },
  })),
})

const givenSizes = ({ inputs: [x, mean, variance, weight, bias] }: Call<BatchNormAttrs>) =>
  normSizes('batchNormEval', x, [
    ['mean', mean],
    ['variance', variance],
    ['weight', weight],
    ['bias', bias],
  ])

const givenStatistics = {
  mean: { in: 1 },
  variance: { in: 2 },
  weight: { in: 3 },
  bias: { in: 4 },
} as const

/**
 * y = x [N,C,...] normalized by given mean [C] and variance [C], times weight [C], plus bias [C], then the epilogue.
 *
 * Mean and variance have no gradient.
 * source: torch.nn.functional.batch_norm with training=False.
 */
export const batchNormEval: Op<BatchNormAttrs> = defineOp<BatchNormAttrs>({
  name: 'batchNormEval',
  infer(inputs, attrs) {
    givenSizes({ inputs, attrs })
    return [tensorType(inputs[0].shape, attrs.half ? 'f16' : 'f32')]
  },
  takesHalf: true,
  givesHalf: () => true,
  takesEpilogue: { operandsFrom: 5, bindings: 6 },
  variants: variantsOf((call, isNaive) => {
    const sizes = givenSizes(call)
    const { eps, epilogue } = call.attrs
    const strip = isNaive ? 1 : stripOf(sizes)
    return { dispatches: normalize(sizes, eps, strip, givenStatistics, epilogue, 5, call) }
  }),
  gradient(context) {
    const [, mean, variance, weight] = context.inputs
    const [dx, dweight, dbias] = gradients(context, [mean, variance, weight], {
      isBatch: false,
      count: null,
    })
    return [dx, undefined, undefined, dweight, dbias]
  },
  reference(values, call) {
    const y = normalizeReference(values, givenSizes(call), call.attrs.eps)
    return [withEpilogue(y, call, values, 5)]
  },
  tolerance,
  // Variances are drawn as any numbers, so eps is large enough to make each sum positive.
  cases: [
    ...samples,
    { name: 'one element', x: [1, 1] },
    { name: 'an empty batch', x: [0, 3, 4, 4] },
  ].map((sample: Sample): Case<BatchNormAttrs> => {
    const { name, x, epilogue = [], fill } = sample
    const features = tensorType([x[1]])
    const types = typesOf(sample)
    return {
      name,
      inputs: [types.x, ...[features, features, features, features], ...types.operands],
      attrs: { eps: fill === 'huge' ? 2e4 : 8, epilogue, ...types.attrs },
      fill,
    }
  }),
})
