import { ShapeError } from '../../util/errors.ts'
import { formatShape, tensorType } from '../../util/shape.ts'
import { oneVariant } from '../elements.ts'
import { defineOp, type ScalarSlot } from '../op.ts'
import { reads, updates, writes } from '../shader.ts'
import { checkPairs, single } from '../single.ts'

/** Which settings of an optimizer depend on how many updates were made, and where its step scalars are. */
export type SettleAttrs =
  | { readonly form: 'plain' }
  /** Adam's stepSize and eps with the bias corrections. */
  | {
      readonly form: 'adam'
      readonly step: ScalarSlot
      readonly lr: ScalarSlot
      readonly logBeta1: ScalarSlot
      readonly logBeta2: ScalarSlot
      readonly eps: ScalarSlot
    }
  /** SGD's gradScale: 1, and `undamped` after the first update. */
  | { readonly form: 'sgd'; readonly step: ScalarSlot; readonly undamped: ScalarSlot }
  /** Adagrad's decayed lr. */
  | {
      readonly form: 'adagrad'
      readonly step: ScalarSlot
      readonly lr: ScalarSlot
      readonly lrDecay: ScalarSlot
    }

const at = ({ slot }: ScalarSlot): string => `scalars[${slot}u]`

function settleLines(attrs: SettleAttrs): string[] {
  if (attrs.form === 'plain') return ['settled[2] = 0.0;', 'settled[3] = 0.0;']
  const made = `let made = max(${at(attrs.step)} - left_out, 1.0);`
  switch (attrs.form) {
    case 'adam':
      return [
        made,
        `let root2 = sqrt(one_minus_exp(made * ${at(attrs.logBeta2)}));`,
        `settled[2] = ${at(attrs.lr)} * root2 / one_minus_exp(made * ${at(attrs.logBeta1)});`,
        `settled[3] = ${at(attrs.eps)} * root2;`,
      ]
    case 'sgd':
      return [
        made,
        `settled[2] = select(${at(attrs.undamped)}, 1.0, made < 1.5);`,
        'settled[3] = 0.0;',
      ]
    case 'adagrad':
      return [
        made,
        `settled[2] = ${at(attrs.lr)} / (1.0 + (made - 1.0) * ${at(attrs.lrDecay)});`,
        'settled[3] = 0.0;',
      ]
  }
}

function settleReference(attrs: SettleAttrs, leftOut: number, scalars: readonly number[]) {
  if (attrs.form === 'plain') return [0, 0]
  const made = Math.max(scalars[attrs.step.slot] - leftOut, 1)
  switch (attrs.form) {
    case 'adam': {
      const root2 = Math.sqrt(-Math.expm1(made * scalars[attrs.logBeta2.slot]))
      const correction1 = -Math.expm1(made * scalars[attrs.logBeta1.slot])
      return [(scalars[attrs.lr.slot] * root2) / correction1, scalars[attrs.eps.slot] * root2]
    }
    case 'sgd':
      return [made < 1.5 ? 1 : scalars[attrs.undamped.slot], 0]
    case 'adagrad':
      return [scalars[attrs.lr.slot] / (1 + (made - 1) * scalars[attrs.lrDecay.slot]), 0]
  }
}

// 1 - e^x for x <= 0. Near 0, where e^x would cancel, nine terms of its series: 2e-10 of the value at -0.5.
const oneMinusExp = `fn one_minus_exp(x: f32) -> f32 {
  let series = 1.0 + x / 2.0 * (1.0 + x / 3.0 * (1.0 + x / 4.0 * (1.0 + x / 5.0 * (1.0 + x / 6.0
    * (1.0 + x / 7.0 * (1.0 + x / 8.0 * (1.0 + x / 9.0)))))));
  return select(1.0 - exp(x), -x * series, x > -0.5);
}`

/**
 * Counts an update that is left out, and works out the settings that depend on how many were made: the host does not know.
 *
 * shape: control [2..], leftOut [1], which changes in place; settled [4] = (factor, skip, the form's two settings).
 */
export const settle = defineOp<SettleAttrs>({
  name: 'settle',
  infer([control, leftOut]) {
    checkPairs('settle', [control], 1)
    if (leftOut.shape.length !== 1 || leftOut.shape[0] !== 1) {
      throw new ShapeError(
        'shape.mismatch',
        `settle: leftOut must be [1], got ${formatShape(leftOut.shape)}. Pass one counter.`,
      )
    }
    return [tensorType([4])]
  },
  updates: [1],
  variants: oneVariant(({ attrs }) => [
    single(
      'settle',
      [
        reads('control', { in: 0 }),
        updates('counter', { in: 1 }),
        writes('settled', { out: 0 }),
        ...(attrs.form === 'plain' ? [] : [reads('scalars', 'scalars')]),
      ],
      attrs.form === 'adam' ? oneMinusExp : '',
      [
        'let left_out = counter[0] + select(0.0, 1.0, control[1] > 0.0);',
        'counter[0] = left_out;',
        'settled[0] = control[0];',
        'settled[1] = control[1];',
        ...settleLines(attrs),
      ],
    ),
  ]),
  reference([control, leftOut], { attrs }, scalars) {
    if (control[1] > 0) leftOut[0] += 1
    return [Float64Array.of(control[0], control[1], ...settleReference(attrs, leftOut[0], scalars))]
  },
  tolerance: {
    absolute: 1e-9,
    relative: 2e-6,
    because: 'exp (3 ulp) less 1, a root and a division',
  },
  cases: [
    { name: 'plain', attrs: { form: 'plain' as const }, scalars: [] },
    { name: 'huge', attrs: { form: 'plain' as const }, scalars: [], fill: 'huge' as const },
    ...[1, 2, 7, 300, 1e5].map((step) => ({
      name: `adam, ${step} steps`,
      attrs: {
        form: 'adam' as const,
        step: { slot: 0 },
        lr: { slot: 1 },
        logBeta1: { slot: 2 },
        logBeta2: { slot: 3 },
        eps: { slot: 4 },
      },
      scalars: [step, 1e-3, Math.log(0.9), Math.log(0.999), 1e-8],
    })),
    ...[1, 9].map((step) => ({
      name: `sgd, ${step} steps`,
      attrs: { form: 'sgd' as const, step: { slot: 1 }, undamped: { slot: 0 } },
      scalars: [0.75, step],
    })),
    {
      name: 'adagrad',
      attrs: {
        form: 'adagrad' as const,
        step: { slot: 0 },
        lr: { slot: 1 },
        lrDecay: { slot: 2 },
      },
      scalars: [12, 0.1, 0.01],
    },
  ].map((one) => ({ ...one, inputs: [tensorType([2]), tensorType([1])] })),
})
