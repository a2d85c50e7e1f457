import { type TensorType, tensorType } from '../../util/shape.ts'
import { oneVariant } from '../elements.ts'
import { defineOp, type ScalarSlot } from '../op.ts'
import { reads, updates, writes } from '../shader.ts'
import { checkPairs, single } from '../single.ts'

// Dynamic loss scaling on the device: kernels of one thread, so that nothing waits for the host.

const pair = tensorType([2])

/**
 * What undoes the loss scale, and whether the update must be left out because a gradient is infinite or NaN.
 *
 * shape: stats [2], scaler [2] (scale, steps since it changed); control [2] = (1 / scale, 0 or 1).
 */
export const unscale = defineOp<Record<string, never>>({
  name: 'unscale',
  infer(inputs) {
    checkPairs('unscale', inputs, 2)
    return [pair]
  },
  variants: oneVariant(() => [
    single(
      'unscale',
      [reads('stats', { in: 0 }), reads('scaler', { in: 1 }), writes('control', { out: 0 })],
      '',
      ['control[0] = 1.0 / scaler[0];', 'control[1] = select(0.0, 1.0, stats[1] > 0.0);'],
    ),
  ]),
  reference: ([stats, scaler]) => [Float64Array.of(1 / scaler[0], stats[1] > 0 ? 1 : 0)],
  tolerance: { absolute: 0, relative: 5e-7, because: 'one division of 2.5 ulp' },
  cases: [
    { name: 'drawn', inputs: [pair, pair], attrs: {} },
    { name: 'huge', inputs: [pair, pair], attrs: {}, fill: 'huge' },
  ],
})

export interface ScalerUpdateAttrs {
  readonly growth: ScalarSlot
  readonly backoff: ScalarSlot
  readonly interval: ScalarSlot
}

/** How many controls one call of `scalerUpdate` takes. */
export const maxControls = 5

/**
 * The loss scale for the next step: times `backoff` where any control says skip, times `growth` after `interval` steps without.
 *
 * shape: scaler [2], which changes in place; controls [2..], one an optimizer.
 * source: PyTorch 1.13's amp_update_scale; unlike it, the scale does not grow past 2^126.
 */
export const scalerUpdate = defineOp<ScalerUpdateAttrs>({
  name: 'scalerUpdate',
  infer(inputs) {
    checkPairs('scalerUpdate', inputs, 1 + maxControls)
    return []
  },
  updates: [0],
  variants: oneVariant(({ inputs, attrs: { growth, backoff, interval } }) => [
    single(
      'scalerUpdate',
      [
        updates('scaler', { in: 0 }),
        ...inputs.slice(1).map((_, i) => reads(`control${i}`, { in: i + 1 })),
        reads('scalars', 'scalars'),
      ],
      '',
      [
        'var found = 0.0;',
        ...inputs.slice(1).map((_, i) => `found = max(found, control${i}[1]);`),
        'if (found > 0.0) {',
        `  scaler[0] = scaler[0] * scalars[${backoff.slot}u];`,
        '  scaler[1] = 0.0;',
        '} else {',
        '  let steps = scaler[1] + 1.0;',
        `  let grows = steps >= scalars[${interval.slot}u];`,
        `  let grown = min(scaler[0] * scalars[${growth.slot}u], 8.507059e37);`,
        '  scaler[0] = select(scaler[0], grown, grows);',
        '  scaler[1] = select(steps, 0.0, grows);',
        '}',
      ],
    ),
  ]),
  reference([scaler, ...controls], { attrs: { growth, backoff, interval } }, scalars) {
    if (controls.some((control) => control[1] > 0)) {
      scaler[0] *= scalars[backoff.slot]
      scaler[1] = 0
      return []
    }
    scaler[1] += 1
    if (scaler[1] >= scalars[interval.slot]) {
      scaler[0] = Math.min(scaler[0] * scalars[growth.slot], 2 ** 126)
      scaler[1] = 0
    }
    return []
  },
  tolerance: { absolute: 0, relative: 2e-7, because: 'one product' },
  cases: [
    { fill: 'normal' as const, controls: 0, interval: 100 },
    { fill: 'normal' as const, controls: 0, interval: -100 },
    { fill: 'normal' as const, controls: 1, interval: 100 },
    { fill: 'huge' as const, controls: 3, interval: 1 },
    { fill: 'ties' as const, controls: 5, interval: 1 },
  ].map(({ fill, controls, interval }) => ({
    name: `${fill}, ${controls} controls, interval ${interval}`,
    inputs: [pair, ...Array<TensorType>(controls).fill(pair)],
    attrs: { growth: { slot: 0 }, backoff: { slot: 1 }, interval: { slot: 2 } },
    scalars: [2, 0.5, interval],
    fill,
  })),
})
