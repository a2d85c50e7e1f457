import { type Shape, tensorType } from '../../util/shape.ts'
import { oneVariant } from '../elements.ts'
import { type Case, caseOf, defineOp, type ScalarSlot } from '../op.ts'
import { reads, writes } from '../shader.ts'
import { checkPairs, single } from '../single.ts'
import { type NormKind, normOf } from './norm.ts'

/** How many tensors one call of `joinStats` takes. */
export const maxJoined = 6

/** The stats of several tensors together. shape: inputs of one or more pairs [2 n]; output [2]. order: that of the inputs. */
export const joinStats = defineOp<{ readonly norm: NormKind }>({
  name: 'joinStats',
  infer(inputs) {
    checkPairs('joinStats', inputs, maxJoined)
    return [tensorType([2])]
  },
  variants: oneVariant(({ inputs, attrs: { norm } }) => [
    single(
      'joinStats',
      [...inputs.map((_, i) => reads(`stats${i}`, { in: i })), writes('total', { out: 0 })],
      '',
      [
        'var value = 0.0;',
        'var flag = 0.0;',
        ...inputs.flatMap(({ shape: [length] }, i) => [
          `for (var i = 0u; i < ${length}u; i += 2u) {`,
          `  let next = stats${i}[i];`,
          `  value = ${normOf(norm).wgsl.join('value', 'next')};`,
          `  flag = max(flag, stats${i}[i + 1u]);`,
          '}',
        ]),
        'total[0] = value;',
        'total[1] = flag;',
      ],
    ),
  ]),
  reference(inputs, { attrs: { norm } }) {
    const { join } = normOf(norm)
    const pairs = inputs.flatMap((stats) => [...stats])
    return [
      Float64Array.of(
        pairs.filter((_, i) => i % 2 === 0).reduce((value, next) => join(value, next), 0),
        pairs.filter((_, i) => i % 2 === 1).reduce((flag, next) => Math.max(flag, next), 0),
      ),
    ]
  },
  tolerance: { absolute: 1e-6, relative: 1e-6, because: 'a few additions' },
  cases: [
    { name: 'none', inputs: [], attrs: { norm: 'l2' } },
    { name: 'one', inputs: [tensorType([2])], attrs: { norm: 'l2' } },
    { name: 'several', inputs: Array(6).fill(tensorType([2])), attrs: { norm: 'l1' } },
    { name: 'those of 3 ranks', inputs: [tensorType([6])], attrs: { norm: 'l2' } },
    { name: 'largest', inputs: Array(3).fill(tensorType([2])), attrs: { norm: 'largest' } },
    { name: 'smallest', inputs: Array(3).fill(tensorType([2])), attrs: { norm: 'smallest' } },
    { name: 'huge', inputs: Array(3).fill(tensorType([2])), attrs: { norm: 'l2' }, fill: 'huge' },
  ],
})

export interface ClipFactorAttrs {
  readonly norm: NormKind
  readonly maxNorm: ScalarSlot
  /** True if an infinite or NaN norm leaves the update out. */
  readonly skipsNonfinite?: boolean
}

/**
 * The gradients' norm, and the factor that brings it to at most `maxNorm`.
 *
 * shape: stats [2], and where gradients have a factor already, control [2..]; norm [], control [2].
 * numerics: min(1, maxNorm / (norm + 1e-6)), NaN for a NaN norm, as torch.nn.utils.clip_grad_norm_.
 */
export const clipFactor = defineOp<ClipFactorAttrs>({
  name: 'clipFactor',
  infer(inputs) {
    checkPairs('clipFactor', inputs, 2)
    return [tensorType([]), tensorType([2])]
  },
  variants: oneVariant(({ inputs, attrs: { norm, maxNorm, skipsNonfinite } }) => [
    single(
      'clipFactor',
      [
        reads('stats', { in: 0 }),
        ...(inputs.length > 1 ? [reads('before', { in: 1 })] : []),
        writes('norm', { out: 0 }),
        writes('control', { out: 1 }),
        reads('scalars', 'scalars'),
      ],
      '',
      [
        `let factor = ${inputs.length > 1 ? 'before[0]' : '1.0'};`,
        'let given = stats[0];',
        `let total = factor * (${normOf(norm).wgsl.finish('given')});`,
        'norm[0] = total;',
        `let most = scalars[${maxNorm.slot}u] / (total + 1e-6);`,
        `control[0] = factor * select(min(1.0, most), most, is_nan(most));`,
        `let skip = ${inputs.length > 1 ? 'before[1]' : '0.0'};`,
        skipsNonfinite
          ? 'control[1] = select(skip, 1.0, (bitcast<u32>(total) & 0x7f800000u) == 0x7f800000u);'
          : 'control[1] = skip;',
      ],
    ),
  ]),
  reference([stats, before], { attrs: { norm, maxNorm, skipsNonfinite } }, scalars) {
    const factor = before ? before[0] : 1
    const total = factor * normOf(norm).finish(stats[0])
    const isLeftOut = skipsNonfinite && !Number.isFinite(Math.fround(total))
    return [
      Float64Array.of(total),
      Float64Array.of(
        factor * Math.min(1, scalars[maxNorm.slot] / (total + 1e-6)),
        isLeftOut ? 1 : before ? before[1] : 0,
      ),
    ]
  },
  tolerance: {
    absolute: 1e-6,
    relative: 2e-6,
    because: 'a root or a power, a division of 2.5 ulp, a product',
  },
  cases: [
    factorCase('alone', 'l2', 0.25),
    factorCase('nothing to clip', 'l2', 100),
    ...(['p3', 'p0.5', 'count', 'smallest'] as const).map((norm) => factorCase(norm, norm, 0.25)),
    factorCase('nothing to leave out', 'l2', 0.5, [[2]], { skipsNonfinite: true }),
    factorCase('after another factor', 'l1', 0.5, [[2], [4]]),
    { ...factorCase('huge', 'largest', 1, [[2], [2]]), fill: 'huge' },
  ],
})

function factorCase(
  name: string,
  norm: ClipFactorAttrs['norm'],
  maxNorm: number,
  inputs: readonly Shape[] = [[2]],
  more: Partial<ClipFactorAttrs> = {},
): Case<ClipFactorAttrs> {
  return caseOf(
    name,
    inputs,
    { norm, maxNorm: { slot: 1 }, ...more },
    { scalars: [0, maxNorm], nonNegative: inputs.map((_, at) => at) },
  )
}

/** A control whose factor has been applied: 1, and whether the update is left out. shape: control [2..]; output [2]. */
export const withoutFactor = defineOp<Record<string, never>>({
  name: 'withoutFactor',
  infer(inputs) {
    checkPairs('withoutFactor', inputs, 1)
    return [tensorType([2])]
  },
  variants: oneVariant(() => [
    single('withoutFactor', [reads('before', { in: 0 }), writes('control', { out: 0 })], '', [
      'control[0] = 1.0;',
      'control[1] = before[1];',
    ]),
  ]),
  reference: ([before]) => [Float64Array.of(1, before[1])],
  tolerance: { absolute: 0, relative: 0, because: 'copies' },
  cases: [
    { name: 'drawn', inputs: [tensorType([2])], attrs: {} },
    { name: 'longer, huge', inputs: [tensorType([4])], attrs: {}, fill: 'huge' },
  ],
})
