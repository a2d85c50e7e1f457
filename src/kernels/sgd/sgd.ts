import { tensorType } from '../../util/shape.ts'
import {
  checkSlice,
  preferredSliceVariant,
  type Slice,
  type SliceElement,
  sliceGrid,
  sliceVariants,
} from '../adamw/slice.ts'
import { type Case, defineOp, type Lowering, type ScalarSlot } from '../op.ts'
import { dispatch, reads, updates } from '../shader.ts'
import { sgdReference } from './sgd.ref.ts'
import body from './sgd.wgsl?raw'

// Two ops, because what an op updates is fixed: with a momentum buffer and without.

export interface SgdAttrs extends Slice {
  readonly lr: ScalarSlot
  readonly weightDecay: number
}

export interface SgdMomentumAttrs extends SgdAttrs {
  /** 1 on the first step, 1 - dampening later. */
  readonly gradScale: ScalarSlot
  readonly momentum: number
  readonly nesterov: boolean
}

function lower(
  attrs: SgdAttrs,
  element: SliceElement,
  momentum: SgdMomentumAttrs | undefined,
): Lowering {
  if (attrs.length === 0) return { dispatches: [] }
  const { groups, constants } = sliceGrid(attrs, element)
  const withMomentum = momentum
    ? [
        `  let next = MOMENTUM * buffer[i] + scalars[${momentum.gradScale.slot}u] * d;`,
        '  buffer[i] = next;',
        `  return ${momentum.nesterov ? 'd + MOMENTUM * next' : 'next'};`,
      ].join('\n')
    : '  return d;'
  return {
    dispatches: [
      dispatch({
        label: momentum ? 'sgdMomentum' : 'sgd',
        bindings: [
          updates('param', { in: 0 }, element),
          reads('grad', { in: 1 }, element),
          ...(momentum ? [updates('buffer', { in: 2 }, element)] : []),
          reads('scalars', 'scalars'),
        ],
        constants: {
          ...constants,
          WEIGHT_DECAY: { f32: attrs.weightDecay },
          ...(momentum ? { MOMENTUM: { f32: momentum.momentum } } : {}),
        },
        body: [
          `fn learning_rate() -> f32 { return scalars[${attrs.lr.slot}u]; }`,
          `fn with_momentum(d: ${element}, i: u32) -> ${element} {\n${withMomentum}\n}`,
          body,
        ].join('\n'),
        groups,
      }),
    ],
  }
}

const slices: readonly (readonly [name: string, n: number, slice: Slice, fill?: Case['fill']])[] = [
  ['one element', 1, { start: 0, length: 1 }],
  ['whole, a multiple', 1024, { start: 0, length: 1024 }],
  ['whole, not a multiple', 333, { start: 0, length: 333 }],
  ['aligned slice, odd tensor', 103, { start: 24, length: 40 }],
  ['odd slice', 101, { start: 13, length: 70 }],
  ['empty slice', 16, { start: 8, length: 0 }],
  ['no elements', 0, { start: 0, length: 0 }],
  ['huge', 260, { start: 0, length: 260 }, 'huge'],
  ['ties', 130, { start: 0, length: 130 }, 'ties'],
]

/** Past 65,535 groups of 64 threads the grid folds into its second dimension. */
const folded = 65_536 * 64 + 5

const tolerance = {
  absolute: 1e-6,
  relative: 1e-6,
  because: 'a few f32 operations that may be fused',
}

/**
 * One SGD step without momentum on elements start .. start + length of flat tensors.
 *
 * shape: param, grad [n]; param changes in place.
 * source: PyTorch 1.13's SGD.
 */
export const sgd = defineOp<SgdAttrs>({
  name: 'sgd',
  infer(inputs, attrs) {
    checkSlice('sgd', ['param', 'grad'], inputs, attrs)
    return []
  },
  updates: [0],
  variants: sliceVariants<SgdAttrs>(({ attrs }, element) => lower(attrs, element, undefined)),
  preferred: preferredSliceVariant,
  reference([param, grad], { attrs }, scalars) {
    sgdReference(param as Float64Array, grad as Float64Array, undefined, {
      ...attrs,
      lr: scalars[attrs.lr.slot],
      gradScale: 1,
      momentum: 0,
      nesterov: false,
    })
    return []
  },
  tolerance,
  cases: [...slices, ['folded grid', folded, { start: 2, length: folded - 3 }] as const].map(
    ([name, n, slice, fill]) => ({
      name,
      inputs: [tensorType([n]), tensorType([n])],
      attrs: { lr: { slot: 1 }, weightDecay: 0.01, ...slice },
      scalars: [0, 0.1],
      fill,
    }),
  ),
})

const momentumCase = (
  [name, n, slice, fill]: (typeof slices)[number],
  nesterov: boolean,
): Case<SgdMomentumAttrs> => ({
  name: nesterov ? `nesterov, ${name}` : name,
  inputs: [tensorType([n]), tensorType([n]), tensorType([n])],
  attrs: {
    lr: { slot: 1 },
    gradScale: { slot: 2 },
    momentum: 0.9,
    weightDecay: 0.01,
    nesterov,
    ...slice,
  },
  scalars: [0, 0.1, 0.75],
  fill,
})

/**
 * One SGD step with a momentum buffer on elements start .. start + length of flat tensors.
 *
 * shape: param, grad, buffer [n]; param and buffer change in place. The buffer starts as zeros.
 * source: PyTorch 1.13's SGD.
 */
export const sgdMomentum = defineOp<SgdMomentumAttrs>({
  name: 'sgdMomentum',
  infer(inputs, attrs) {
    checkSlice('sgdMomentum', ['param', 'grad', 'buffer'], inputs, attrs)
    return []
  },
  updates: [0, 2],
  variants: sliceVariants<SgdMomentumAttrs>(({ attrs }, element) => lower(attrs, element, attrs)),
  preferred: preferredSliceVariant,
  reference([param, grad, buffer], { attrs }, scalars) {
    sgdReference(param as Float64Array, grad as Float64Array, buffer as Float64Array, {
      ...attrs,
      lr: scalars[attrs.lr.slot],
      gradScale: scalars[attrs.gradScale.slot],
    })
    return []
  },
  tolerance,
  cases: [
    ...slices.map((slice) => momentumCase(slice, false)),
    ...slices.slice(1, 5).map((slice) => momentumCase(slice, true)),
  ],
})
