import { tensorType } from '../../util/shape.ts'
import { eachFloat } from '../elements.ts'
import { defineOp, type Op, type OpCall, type Variant } from '../op.ts'
import { floatFunction, readsFloats } from '../shader.ts'
import { asHalf, type ConvRow, convCases } from './cases.ts'
import { conv2dGradWeightReference, rowSumsReference } from './conv2d.ref.ts'
import naiveWgsl from './conv2d-grad-weight-naive.wgsl?raw'
import {
  type ConvGradWeightAttrs,
  checkGradientShape,
  checkImages,
  convFlops,
  convSizes,
} from './geometry.ts'
import { blockSize, splitGradWeight, type WeightBlock } from './grad-weight-split.ts'
import rowSumsWgsl from './row-sums-naive.wgsl?raw'

type Call = OpCall<ConvGradWeightAttrs>

const sizesOf = ({ inputs: [dy, x], attrs }: Pick<Call, 'inputs' | 'attrs'>) =>
  convSizes(
    'conv2dGradWeight',
    x.shape,
    [dy.shape[1], Math.floor(x.shape[1] / (attrs.groups ?? 1)), attrs.kernel[0], attrs.kernel[1]],
    attrs,
  )

/** Best first for many channels; one input channel leaves room for more outputs. */
const blocks = {
  split4x4: { outputs: 4, inputs: 4 },
  split8x1: { outputs: 8, inputs: 1 },
  split4x1: { outputs: 4, inputs: 1 },
} as const satisfies Record<string, WeightBlock>

/** Accumulators beyond this make shaders that take seconds to compile and spill on GPUs. */
const maxAccumulators = 160

const canSplit = (call: Call, block: WeightBlock) => {
  const sizes = sizesOf(call)
  return sizes.N > 0 && blockSize(block, sizes) <= maxAccumulators
}

/**
 * dw [O,C/groups,KH,KW] of conv2d from dy [N,O,OH,OW] and x [N,C,H,W]; with `rowSums` also db [O], the bias gradient.
 * source: torch.nn.grad.conv2d_weight
 */
export const conv2dGradWeight: Op<ConvGradWeightAttrs> = defineOp<ConvGradWeightAttrs>({
  name: 'conv2dGradWeight',
  takesRowSums: true,
  infer(inputs, attrs) {
    const [dy, x] = inputs
    checkImages('conv2dGradWeight', 'dy', dy)
    checkImages('conv2dGradWeight', 'x', x)
    const { N, CG, O, KH, KW, OH, OW } = sizesOf({ inputs, attrs })
    checkGradientShape('conv2dGradWeight', dy.shape, [N, O, OH, OW])
    return [tensorType([O, CG, KH, KW]), ...(attrs.rowSums ? [tensorType([O])] : [])]
  },
  takesHalf: true,
  flops: (call) => convFlops(sizesOf(call)),
  variants: [
    {
      name: 'naive',
      lower(call) {
        const sizes = sizesOf(call)
        const { N, C, O, OH, OW } = sizes
        const {
          inputs: [dy, x],
          outputs: [dw, db],
        } = call
        const weights = eachFloat({
          label: `conv2dGradWeight ${C}->${O} naive`,
          bindings: [readsFloats('dy', { in: 0 }, dy), readsFloats('x', { in: 1 }, x)],
          output: { name: 'dw', type: dw },
          constants: { ...sizes },
          functions: [floatFunction('dy', dy), floatFunction('x', x), naiveWgsl].join('\n\n'),
        })
        if (!call.attrs.rowSums) return { dispatches: weights }
        const sums = eachFloat({
          label: `row sums ${O} naive`,
          bindings: [readsFloats('dy', { in: 0 }, dy)],
          output: { name: 'db', type: db, operand: { out: 1 } },
          constants: { N, O, PLANE: OH * OW },
          functions: `${floatFunction('dy', dy)}\n\n${rowSumsWgsl}`,
        })
        return { dispatches: [...weights, ...sums] }
      },
    },
    ...Object.entries(blocks).map(
      ([name, block]): Variant<ConvGradWeightAttrs> => ({
        name,
        when: (call) => canSplit(call, block),
        lower: (call) => splitGradWeight(sizesOf(call), call, block, 2048),
      }),
    ),
  ],
  preferred(call, { isSoftware }) {
    const { N, O, OH, OW, KH, KW, CG } = sizesOf(call)
    // With few inputs a wider block runs no faster. With more it saves a fifth, and on SwiftShader compiles for half a second longer.
    const flops = 2 * N * O * OH * OW * CG * KH * KW
    const isSoonDone = isSoftware !== false && flops < 4e8
    const isNarrow = CG < 4 || isSoonDone
    const order = isNarrow
      ? (['split4x1'] as const)
      : (['split4x4', 'split8x1', 'split4x1'] as const)
    return order.find((name) => canSplit(call, blocks[name])) ?? 'naive'
  },
  reference([dy, x], call) {
    const sizes = sizesOf(call)
    const dw = conv2dGradWeightReference(dy, x, sizes)
    return call.attrs.rowSums ? [dw, rowSumsReference(dy, sizes)] : [dw]
  },
  tolerance: {
    absolute: 2e-4,
    relative: 4e-6,
    because:
      'N*OH*OW products of normal numbers summed in f32, naive one after the other; terms cancel',
  },
  cases: [
    ...casesOf(true),
    ...casesOf(true, [
      ['more images than parts', [67, 4, 7, 7], [8, 4, 3, 3], { padding: [1, 1] }],
    ]),
    ...casesOf(false, [['no row sums', [3, 16, 14, 14], [32, 16, 3, 3], { padding: [1, 1] }]]),
    ...casesOf(true, [['f16', [3, 5, 7, 9], [6, 5, 3, 3], { padding: [1, 1] }]]).map((one) => ({
      ...one,
      inputs: one.inputs.map(asHalf),
    })),
  ],
})

function casesOf(rowSums: boolean, rows?: readonly ConvRow[]) {
  return convCases<ConvGradWeightAttrs>(({ x, weight, y, window }) => {
    const [, , KH, KW] = weight.shape
    return { inputs: [y, x], attrs: { ...window, kernel: [KH, KW], rowSums } }
  }, rows)
}
