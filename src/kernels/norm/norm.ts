import { ShapeError } from '../../util/errors.ts'
import {
  formatShape,
  type Shape,
  sameShape,
  type TensorType,
  tensorType,
} from '../../util/shape.ts'
import { applyEpilogue } from '../conv2d/epilogue.ts'
import { storedAs } from '../half.ts'
import { i, s, singleStep, step } from '../map/rules/rule.ts'
import { type Case, caseOf, defineOp, type KernelLimits, type Op, type OpCall } from '../op.ts'
import { chainShape, type Step } from '../steps.ts'
import { checkChannels, isInFours, type NormAttrs, type NormSizes, normSizes } from './geometry.ts'
import { type GradOutputs, storeChain } from './grad.ts'
import { fitsLanes, laneLayout, lanesNorm, lanesNormGrad } from './lanes.ts'
import { channelGradients, naiveNorm, naiveNormGradInput } from './naive.ts'
import { normGradReference, normReference } from './norm.ref.ts'

export type { NormAttrs }

const describe = ({ rows, size }: NormSizes) => `${rows}x${size}`

const sizesOf = ({ inputs: [x], attrs }: OpCall<NormAttrs>) => normSizes('norm', x, attrs)
const parametersOf = ({ inputs }: OpCall<NormAttrs>) => ({
  weight: inputs.length > 1,
  bias: inputs.length > 2,
})

/** Rows, and channels, from which one invocation each keeps a CPU busy. */
const enoughInvocations = 64

/** The fixed table: lanes beat one invocation a row where rows are of some length, save on a CPU, where their barriers cost more. */
function preferred(sizes: NormSizes, { isSoftware, isWasm }: KernelLimits): string {
  const { rows, channels, span } = sizes
  const isBusy = rows >= enoughInvocations && channels >= enoughInvocations && span === 1
  if (isWasm || (isSoftware && isBusy)) return 'naive'
  return fitsLanes(sizes) && laneLayout(sizes).lanes > 1 ? 'lanes' : 'naive'
}

const layer = (size: number, more: Partial<NormAttrs> = {}): NormAttrs => ({
  size,
  groups: 1,
  span: 1,
  eps: 1e-5,
  isCentered: true,
  ...more,
})

/** Rows of x, of f16 where `dtype` says so, with as many parameters a channel: weight, then bias. */
function normCase(
  name: string,
  x: Shape,
  parameters: 0 | 1 | 2,
  attrs: NormAttrs,
  { fill, dtype }: Pick<Case, 'fill'> & { dtype?: 'f16' } = {},
): Case<NormAttrs> {
  const given = tensorType(x, dtype)
  const { channels } = normSizes('norm', given, attrs)
  return caseOf(name, [given, ...[[channels], [channels]].slice(0, parameters)], attrs, { fill })
}

const normCases = (): readonly Case<NormAttrs>[] => [
  normCase('one element', [1], 2, layer(1)),
  normCase('layer 5x7', [5, 7], 2, layer(7)),
  normCase('layer without parameters, 3x2x6 over 2 axes', [3, 2, 6], 0, layer(12)),
  normCase('layer 70x64, several workgroups', [70, 64], 2, layer(64)),
  normCase('layer 300x36', [300, 36], 2, layer(36)),
  normCase('layer 3x255, scalar lanes in several units', [3, 255], 2, layer(255)),
  normCase('layer 2x772', [2, 772], 2, layer(772)),
  normCase('a row beyond the registers', [2, 2053], 2, layer(2053)),
  normCase('rms 9x20', [9, 20], 1, layer(20, { isCentered: false, eps: 1e-6 })),
  normCase('groups 2 of 2x6x3x3', [2, 6, 3, 3], 2, layer(27, { groups: 2, span: 9 })),
  normCase('groups 3 of 5x6x4x2', [5, 6, 4, 2], 2, layer(16, { groups: 3, span: 8 })),
  normCase('groups 2 of 3x8, no space', [3, 8], 2, layer(4, { groups: 2, span: 1 })),
  normCase('no rows', [0, 8], 2, layer(8)),
  normCase('huge', [4, 33], 2, layer(33), { fill: 'huge' }),
  normCase('ties', [4, 12], 2, layer(12), { fill: 'ties' }),
  normCase('f16 to f16, 5x12', [5, 12], 2, layer(12, { half: true }), { dtype: 'f16' }),
  normCase('f16, 3 groups of 1x6x5', [1, 6, 5], 2, layer(10, { groups: 3, span: 5 }), {
    dtype: 'f16',
  }),
]

/** y = rows of x normalised, times weight, plus bias; stats [rows, 2] = mean and 1 / deviation. Inputs: x, weight?, bias?. */
export const norm: Op<NormAttrs> = defineOp<NormAttrs>({
  name: 'norm',
  infer([x, ...parameters], attrs) {
    const sizes = normSizes('norm', x, attrs)
    checkChannels('norm', parameters, sizes)
    return [tensorType(x.shape, attrs.half ? 'f16' : 'f32'), tensorType([sizes.rows, 2])]
  },
  takesHalf: true,
  givesHalf: ({ attrs }) => isInFours(attrs),
  variants: [
    {
      name: 'naive',
      lower(call) {
        const sizes = sizesOf(call)
        if (sizes.rows === 0) return { dispatches: [] }
        const label = `norm ${describe(sizes)} naive`
        return { dispatches: [naiveNorm(label, sizes, call, parametersOf(call))] }
      },
    },
    {
      name: 'lanes',
      when: (call) => fitsLanes(sizesOf(call)),
      lower(call) {
        const sizes = sizesOf(call)
        if (sizes.rows === 0) return { dispatches: [] }
        return lanesNorm(`norm ${describe(sizes)}`, sizes, call, parametersOf(call))
      },
    },
  ],
  preferred: (call, limits) => preferred(sizesOf(call), limits),
  gradient(context) {
    const { inputs, outputs, outputGradients, attrs } = context
    const [dy] = outputGradients
    if (!dy) return inputs.map(() => undefined)
    const [x, weight, bias] = inputs
    const { half: _, ...rows } = attrs
    return context.emit(normGrad, [dy, x, outputs[1], ...(weight ? [weight] : [])], {
      ...rows,
      hasWeight: weight !== undefined,
      hasBias: bias !== undefined,
      epilogue: [],
    })
  },
  reference([x, weight, bias], call) {
    const { eps, isCentered } = call.attrs
    const [y, stats] = normReference(x, weight, bias, sizesOf(call), eps, isCentered)
    return [storedAs(call.attrs, y), stats]
  },
  tolerance: {
    absolute: 2e-6,
    relative: 4e-6,
    because: 'sums over a row in f32 and a square root and division of a few ULP; terms cancel',
  },
  cases: normCases(),
})

export interface NormGradAttrs extends NormAttrs {
  readonly hasWeight: boolean
  readonly hasBias: boolean
  /** Chain at the store of dx: input 0 is dx, inputs 1.. are the call's further inputs, which broadcast to x. */
  readonly epilogue: readonly Step[]
}

const gradSizes = ({ inputs, attrs }: OpCall<NormGradAttrs>) =>
  normSizes('normGrad', inputs[1], attrs)
const ownInputs = ({ hasWeight }: NormGradAttrs) => (hasWeight ? 4 : 3)
const gradOutputs = ({ hasWeight, hasBias }: NormGradAttrs): GradOutputs => ({
  weight: hasWeight ? 1 : undefined,
  bias: hasBias ? 2 : undefined,
})

function lowerGrad(call: OpCall<NormGradAttrs>, useLanes: boolean) {
  const { attrs, inputs } = call
  const sizes = gradSizes(call)
  const label = `normGrad ${describe(sizes)}${useLanes ? '' : ' naive'}`
  const chain = storeChain(attrs.epilogue, inputs, ownInputs(attrs), inputs[1].shape)
  const outputs = gradOutputs(attrs)
  const isPerElement = sizes.groups === 1 && sizes.span === 1
  if (useLanes && sizes.rows > 0 && (isPerElement || !attrs.hasWeight)) {
    return lanesNormGrad(label, sizes, call, attrs.hasWeight, chain, outputs)
  }
  const channels = attrs.hasWeight
    ? [channelGradients(`${label} parameters`, sizes, call, outputs, useLanes)]
    : []
  if (sizes.rows === 0) return { dispatches: channels }
  const rows = useLanes
    ? lanesNormGrad(label, sizes, call, attrs.hasWeight, chain, undefined).dispatches
    : [naiveNormGradInput(label, sizes, call, attrs.hasWeight, chain)]
  return { dispatches: [...rows, ...channels] }
}

/** dx, dweight?, dbias? of norm. Inputs: dy, x, stats, weight?, then the epilogue's operands. */
export const normGrad: Op<NormGradAttrs> = defineOp<NormGradAttrs>({
  name: 'normGrad',
  // dy, x, stats, weight?, dx and partial sums.
  takesEpilogue: {
    of: (attrs) => ({ operandsFrom: ownInputs(attrs), bindings: ownInputs(attrs) + 2 }),
  },
  takesHalf: true,
  givesHalf: ({ attrs }) => isInFours(attrs),
  infer(inputs, attrs) {
    const [dy, x, stats] = inputs
    const sizes = normSizes('normGrad', x, attrs)
    const weight = attrs.hasWeight ? inputs[3] : undefined
    if (!sameShape(dy.shape, x.shape) || !sameShape(stats.shape, [sizes.rows, 2])) {
      throw new ShapeError(
        'shape.mismatch',
        `normGrad: dy must be ${formatShape(x.shape)} and stats ${formatShape([sizes.rows, 2])}, got ${formatShape(dy.shape)} and ${formatShape(stats.shape)}. Pass the forward op's outputs unchanged.`,
      )
    }
    if (weight) checkChannels('normGrad', [weight], sizes)
    const operands = inputs.slice(ownInputs(attrs)).map(({ shape }) => shape)
    if (!sameShape(chainShape('normGrad epilogue', [x.shape, ...operands]), x.shape)) {
      throw new ShapeError(
        'shape.mismatch',
        `normGrad: operands of the epilogue must broadcast to ${formatShape(x.shape)}, got ${operands.map(formatShape).join(', ')}. Reshape them.`,
      )
    }
    return [
      tensorType(x.shape, attrs.half ? 'f16' : 'f32'),
      ...(weight ? [tensorType(weight.shape)] : []),
      ...(weight && attrs.hasBias ? [tensorType(weight.shape)] : []),
    ]
  },
  variants: [
    { name: 'naive', lower: (call) => lowerGrad(call, false) },
    {
      name: 'lanes',
      when: (call) => fitsLanes(gradSizes(call)),
      lower: (call) => lowerGrad(call, true),
    },
  ],
  preferred: (call, limits) => preferred(gradSizes(call), limits),
  reference([dy, x, stats, ...others], call) {
    const { attrs, inputs, outputs } = call
    const weight = attrs.hasWeight ? others[0] : undefined
    const { dx, dweight, dbias } = normGradReference(
      dy,
      x,
      stats,
      weight,
      gradSizes(call),
      attrs.isCentered,
    )
    const own = ownInputs(attrs)
    const operands = others.slice(own - 3)
    const finished = applyEpilogue(
      attrs.epilogue,
      dx,
      outputs[0].shape,
      operands,
      inputs.slice(own),
    )
    return [
      storedAs(attrs, finished),
      ...(attrs.hasWeight ? [dweight] : []),
      ...(attrs.hasBias ? [dbias] : []),
    ]
  },
  tolerance: {
    absolute: 5e-5,
    relative: 4e-6,
    because: 'sums over rows and columns of products of three normals in f32; terms cancel',
  },
  cases: [
    ...normCases().map((one) => gradCase(one)),
    gradCase(normCase('many rows', [1000, 4], 2, layer(4))),
    gradCase(
      normCase('a residual gradient and a row added at the store', [6, 3, 8], 2, layer(8)),
      [step('add', i(0), i(1)), step('mul', s(0), i(2))],
      [
        [6, 3, 8],
        [3, 1],
      ],
    ),
    gradCase(
      normCase('f16, an operand of f16', [5, 12], 2, layer(12, { half: true }), { dtype: 'f16' }),
      singleStep('add', 2),
      [tensorType([5, 12], 'f16')],
    ),
  ],
})

function gradCase(
  { name, inputs: [x, weight, bias], attrs, fill }: Case<NormAttrs>,
  epilogue: readonly Step[] = [],
  operands: readonly (Shape | TensorType)[] = [],
): Case<NormGradAttrs> {
  const dy = tensorType(x.shape, attrs.half ? 'f16' : 'f32')
  const stats = [normSizes('norm', x, attrs).rows, 2]
  return caseOf(
    name,
    [dy, x, stats, ...(weight ? [weight] : []), ...operands],
    { ...attrs, hasWeight: weight !== undefined, hasBias: bias !== undefined, epilogue },
    { fill },
  )
}
