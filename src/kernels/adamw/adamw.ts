import { tensorType } from '../../util/shape.ts'
import { type Case, defineOp, type Lowering, type OpCall, type ScalarSlot } from '../op.ts'
import { dispatch, reads, updates } from '../shader.ts'
import { adamwReference } from './adamw.ref.ts'
import body from './adamw.wgsl?raw'
import {
  checkSlice,
  preferredSliceVariant,
  type Slice,
  type SliceElement,
  sliceGrid,
  sliceVariants,
} from './slice.ts'

export interface AdamwAttrs extends Slice {
  readonly lr: ScalarSlot
  /** 1 - beta1^t for the step t = 1, 2, ..., computed on the host in f64. */
  readonly biasCorrection1: ScalarSlot
  /** 1 - beta2^t */
  readonly biasCorrection2: ScalarSlot
  readonly beta1: number
  readonly beta2: number
  readonly eps: number
  readonly weightDecay: number
}

function lower({ attrs }: OpCall<AdamwAttrs>, element: SliceElement): Lowering {
  if (attrs.length === 0) return { dispatches: [] }
  const { groups, constants } = sliceGrid(attrs, element)
  const scalarFunction = (name: string, { slot }: ScalarSlot) =>
    `fn ${name}() -> f32 { return scalars[${slot}u]; }`
  return {
    dispatches: [
      dispatch({
        label: 'adamw',
        bindings: [
          updates('param', { in: 0 }, element),
          reads('grad', { in: 1 }, element),
          updates('m', { in: 2 }, element),
          updates('v', { in: 3 }, element),
          reads('scalars', 'scalars'),
        ],
        constants: {
          ...constants,
          BETA1: { f32: attrs.beta1 },
          ONE_MINUS_BETA1: { f32: 1 - attrs.beta1 },
          BETA2: { f32: attrs.beta2 },
          ONE_MINUS_BETA2: { f32: 1 - attrs.beta2 },
          EPS: { f32: attrs.eps },
          WEIGHT_DECAY: { f32: attrs.weightDecay },
        },
        body: [
          scalarFunction('learning_rate', attrs.lr),
          scalarFunction('bias_correction1', attrs.biasCorrection1),
          scalarFunction('bias_correction2', attrs.biasCorrection2),
          body,
        ].join('\n'),
        groups,
      }),
    ],
  }
}

const sample = (
  name: string,
  n: number,
  slice: Slice,
  more: Partial<Case<AdamwAttrs>> = {},
): Case<AdamwAttrs> => ({
  name,
  inputs: [n, n, n, n].map((length) => tensorType([length])),
  attrs: {
    lr: { slot: 1 },
    biasCorrection1: { slot: 2 },
    biasCorrection2: { slot: 3 },
    beta1: 0.9,
    // Drawn values of v may be negative, which v never is: they get no weight. tests/gpu/golden-ops.spec.ts runs 0.999.
    beta2: 0,
    eps: 1e-8,
    weightDecay: 0.01,
    ...slice,
  },
  scalars: [0, 1e-2, 1 - 0.9 ** 3, 1 - 0.999 ** 3],
  ...more,
})

/**
 * One AdamW step on elements start .. start + length of flat tensors; the rest is left alone.
 *
 * shape: param, grad, m, v [n]; param, m and v change in place. m and v start as zeros.
 * source: PyTorch 1.13's AdamW, without amsgrad.
 */
export const adamw = defineOp<AdamwAttrs>({
  name: 'adamw',
  infer(inputs, attrs) {
    checkSlice('adamw', ['param', 'grad', 'm', 'v'], inputs, attrs)
    return []
  },
  updates: [0, 2, 3],
  variants: sliceVariants(lower),
  preferred: preferredSliceVariant,
  reference([param, grad, m, v], { attrs }, scalars) {
    adamwReference(
      param as Float64Array,
      grad as Float64Array,
      m as Float64Array,
      v as Float64Array,
      {
        ...attrs,
        lr: scalars[attrs.lr.slot],
        biasCorrection1: scalars[attrs.biasCorrection1.slot],
        biasCorrection2: scalars[attrs.biasCorrection2.slot],
      },
    )
    return []
  },
  tolerance: {
    absolute: 1e-6,
    relative: 2e-6,
    because: 'a handful of f32 operations, one division of 2.5 ulp and two square roots',
  },
  cases: [
    sample('one element', 1, { start: 0, length: 1 }),
    sample('whole, a multiple', 1024, { start: 0, length: 1024 }),
    sample('whole, not a multiple', 333, { start: 0, length: 333 }),
    sample('aligned slice', 100, { start: 24, length: 40 }),
    sample('aligned slice, odd tensor', 103, { start: 96, length: 4 }),
    sample('odd slice', 101, { start: 13, length: 70 }),
    sample('empty slice', 16, { start: 8, length: 0 }),
    sample('no elements', 0, { start: 0, length: 0 }),
    sample('huge', 260, { start: 0, length: 260 }, { fill: 'huge' }),
    sample('ties', 130, { start: 0, length: 130 }, { fill: 'ties' }),
  ],
})
