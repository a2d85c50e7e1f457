import { countElements, sameShape, type TensorType } from '../../util/shape.ts'
import { countedRowsWgsl } from '../counted-rows.ts'
import { type ElementKernel, eachElement } from '../elements.ts'
import { floatElement } from '../half-bindings.ts'
import type { Dispatch, OpCall, Operand, ScalarSlot } from '../op.ts'
import { adding, addingPairs, rowKernel } from '../rows.ts'
import { ceilDiv, f32Literal, reads, type ShaderBinding, writes } from '../shader.ts'
import { broadcastIndex, type Step, stepsToWgsl } from '../steps.ts'
import type { NormSizes } from './batch-norm.ref.ts'

/** Invocations of a channel's workgroup: more where a channel is long, fewer where very many are short. */
const threadsFor = ({ C, M }: NormSizes): number => {
  if (M >= 8192) return 256
  return C > 65_535 ? Math.min(64, 2 ** Math.ceil(Math.log2(Math.max(1, M)))) : 64
}

/** Neighbours of one channel's plane that one invocation of the elementwise kernels takes. */
export const stripOf = ({ L }: NormSizes): number => [8, 4, 2].find((n) => L % n === 0) ?? 1

/** The rows that count, for a kernel that leaves the others out; null: all do. */
type Count = ScalarSlot | null

const countBinding = (count: Count): ShaderBinding[] => (count ? [reads('scalars', 'scalars')] : [])

/** Rows of a kernel that reduces each channel, whose element number c lies in image c / L. */
const channelRows = (sizes: NormSizes, threads = threadsFor(sizes)) => ({
  rows: { outer: sizes.C, reduced: sizes.M, inner: 1 },
  lanes: threads,
  at: `(c / ${sizes.L}u * ${sizes.C}u + row) * ${sizes.L}u + c % ${sizes.L}u`,
})

/**
 * Mean and variance of x (input 0) into outputs 1 and 2, over the rows that count; where none does, both are 0. `keep` is WGSL that updates
 * running statistics of channel `c` through `bindings`.
 *
 * numerics: two passes. The second also sums x - mean, by which both results are corrected, so that the first sum's rounding drops out.
 * source: Chan, Golub and LeVeque, "Algorithms for computing the sample variance" (1983), the corrected two-pass algorithm.
 */
export const statistics = (
  { inputs: [x] }: OpCall<unknown>,
  sizes: NormSizes,
  threads: number | undefined,
  count: Count,
  bindings: readonly ShaderBinding[],
  keep: string,
): Dispatch[] =>
  rowKernel({
    label: `batchNorm statistics ${sizes.C}x${sizes.M}`,
    ...channelRows(sizes, threads),
    bindings: [
      reads('x', { in: 0 }, floatElement(x)),
      writes('mean', { out: 1 }),
      writes('variance', { out: 2 }),
      ...bindings,
      ...countBinding(count),
    ],
    constants: { R: sizes.N },
    functions: `${countedRowsWgsl(count)}
fn off_by(by: f32) -> vec2<f32> { return vec2<f32>(by, by * by); }
fn keep(c: u32, mean_now: f32, variance_now: f32, count: u32) {\n${keep}\n}`,
    begin: [`let count = counted_rows() * ${sizes.L}u;`, 'let divisor = f32(max(count, 1u));'],
    range: ['0u', `counted_rows() * ${sizes.L}u`],
    reductions: [
      { name: 'sum', join: adding, of: 'x[at]', after: ['let rough = sum / divisor;'] },
      { name: 'sums', join: addingPairs, of: 'off_by(x[at] - rough)' },
    ],
    once: [
      'let correction = sums.x / divisor;',
      'let m = rough + correction;',
      'let v = max(sums.y - sums.x * correction, 0.0) / divisor;',
      'mean[row] = m;',
      'variance[row] = v;',
      'keep(row, m, v, count);',
    ],
  })

/** dweight and dbias (outputs 1 and 2) from dy, x, mean and variance (inputs 0 to 3): sums of dy (x - mean) / deviation, and of dy. */
export const gradSums = (
  { inputs: [dy, x] }: OpCall<unknown>,
  sizes: NormSizes,
  eps: number,
  threads: number | undefined,
): Dispatch[] =>
  rowKernel({
    label: `batchNormGrad sums ${sizes.C}x${sizes.M}`,
    ...channelRows(sizes, threads),
    bindings: [
      reads('dy', { in: 0 }, floatElement(dy)),
      reads('x', { in: 1 }, floatElement(x)),
      reads('mean', { in: 2 }),
      reads('variance', { in: 3 }),
      writes('dweight', { out: 1 }),
      writes('dbias', { out: 2 }),
    ],
    begin: [`let center = mean[min(row, ${sizes.C - 1}u)];`],
    reductions: [
      { name: 'sums', join: addingPairs, of: 'vec2<f32>(1.0, x[at] - center) * dy[at]' },
    ],
    once: [
      'dbias[row] = sums.x;',
      `dweight[row] = sums.y / sqrt(variance[row] + ${f32Literal(eps)});`,
    ],
  })

/** An elementwise kernel over [N, C, L]: `perChannel` lines know `c`, `perElement` lines and the value know `at`, too. */
interface ChannelKernel
  extends Pick<ElementKernel, 'label' | 'bindings' | 'constants' | 'functions'> {
  readonly sizes: NormSizes
  /** Neighbouring elements of a channel that one invocation takes. */
  readonly strip: number
  readonly perChannel: readonly string[]
  readonly perElement: readonly string[]
  /** The tensor that an element is stored in, and its value. */
  readonly name: string
  readonly value: string
  readonly type: TensorType
}

function overElements({
  sizes: { C, L },
  strip,
  perChannel,
  perElement,
  name,
  value,
  type,
  ...kernel
}: ChannelKernel): Dispatch[] {
  const count = countElements(type.shape)
  const isHalf = type.dtype === 'f16'
  // Of single f16 an invocation takes the two of a word, which may be of two channels.
  const isApart = isHalf && strip === 1
  const taken = isApart ? 2 : strip
  const channel = (at: string) => [`let c = ${at} / ${L}u % ${C}u;`, ...perChannel]
  return eachElement({
    ...kernel,
    count: ceilDiv(count, taken),
    bindings: [...kernel.bindings, writes(name, { out: 0 }, floatElement(type))],
    main: [
      `let first = i * ${taken}u;`,
      ...(isApart ? [] : channel('first')),
      ...(isHalf ? ['var pair = vec2<f32>(0.0, 0.0);'] : []),
      ...Array.from({ length: taken }, (_, s) => [
        '{',
        // Behind an odd number of elements comes the last one once more.
        `  let at = ${isApart ? `min(first + ${s}u, ${count - 1}u)` : `first + ${s}u`};`,
        ...[...(isApart ? channel('at') : []), ...perElement].map((line) => `  ${line}`),
        isHalf ? `  pair[${s % 2}] = ${value};` : `  ${name}[at] = ${value};`,
        '}',
        ...(isHalf && s % 2 === 1
          ? [`${name}[(first >> 1u) + ${s >> 1}u] = pack_half(pair.x, pair.y);`]
          : []),
      ]).flat(),
    ],
  })
}

/** Where the vectors that normalize x (input 0) are. */
export interface NormOperands {
  readonly mean: Operand
  readonly variance: Operand
  readonly weight: Operand
  readonly bias: Operand
}

/**
 * y (output 0) = finish((x - mean) * (weight / sqrt(variance + eps)) + bias), where `finish` is the chain `steps`, whose operands are the
 * call's inputs from `operandsFrom` on.
 */
export function normalize(
  sizes: NormSizes,
  eps: number,
  strip: number,
  { mean, variance, weight, bias }: NormOperands,
  steps: readonly Step[],
  operandsFrom: number,
  call: OpCall<unknown>,
): Dispatch[] {
  const [y] = call.outputs
  const operands = call.inputs.slice(operandsFrom)
  const { lines, result } = stepsToWgsl(steps, [
    'normal',
    ...operands.map((operand, k) => `e${k + 1}[${indexOf(operand, y)}]`),
  ])
  return overElements({
    label: `batchNorm ${y.shape.join('x')}`,
    sizes,
    strip,
    bindings: [
      reads('x', { in: 0 }, floatElement(call.inputs[0])),
      reads('mean', mean),
      reads('variance', variance),
      reads('weight', weight),
      reads('bias', bias),
      ...operands.map((operand, k) =>
        reads(`e${k + 1}`, { in: operandsFrom + k }, floatElement(operand)),
      ),
    ],
    perChannel: [
      `let scale = weight[c] / sqrt(variance[c] + ${f32Literal(eps)});`,
      'let center = mean[c];',
      'let shift = bias[c];',
    ],
    perElement: ['let normal = (x[at] - center) * scale + shift;', ...lines],
    ...{ name: 'y', value: result, type: y },
  })
}

/** WGSL index into a chain operand for the output element `at`. */
function indexOf(operand: TensorType, output: TensorType): string {
  if (sameShape(operand.shape, output.shape)) return 'at'
  let stride = 1
  const coordinates: string[] = []
  for (let axis = output.shape.length - 1; axis >= 0; axis--) {
    coordinates[axis] = `(at / ${stride}u % ${output.shape[axis]}u)`
    stride *= output.shape[axis]
  }
  return broadcastIndex(output.shape, operand.shape, coordinates)
}

/** dx (output 0) from dy, x, mean, variance, weight (inputs) and dweight, dbias (outputs 1 and 2); rows that do not count have no share in the statistics. */
export function gradInput(
  sizes: NormSizes,
  eps: number,
  { isBatch, count }: { isBatch: boolean; count: Count },
  strip: number,
  call: OpCall<unknown>,
): Dispatch[] {
  const [dx] = call.outputs
  const apart = 'dy[at] - shared_mean - (x[at] - center) * slope'
  const value = !isBatch ? 'dy[at]' : count ? `select(dy[at], ${apart}, at < used)` : apart
  return overElements({
    label: `batchNormGrad ${dx.shape.join('x')}`,
    sizes,
    strip,
    bindings: [
      reads('dy', { in: 0 }, floatElement(call.inputs[0])),
      ...(isBatch
        ? [reads('x', { in: 1 }, floatElement(call.inputs[1])), reads('mean', { in: 2 })]
        : []),
      reads('variance', { in: 3 }),
      reads('weight', { in: 4 }),
      ...(isBatch ? [reads('dweight', { out: 1 }), reads('dbias', { out: 2 })] : []),
      ...countBinding(count),
    ],
    constants: { R: sizes.N },
    functions: countedRowsWgsl(count),
    perChannel: [
      `let inverse = 1.0 / sqrt(variance[c] + ${f32Literal(eps)});`,
      'let scale = weight[c] * inverse;',
      ...(isBatch
        ? [
            'let rows = counted_rows();',
            ...(count ? [`let used = rows * ${sizes.C * sizes.L}u;`] : []),
            'let center = mean[c];',
            `let divisor = f32(max(rows, 1u) * ${sizes.L}u);`,
            'let shared_mean = dbias[c] / divisor;',
            'let slope = dweight[c] * inverse / divisor;',
          ]
        : []),
    ],
    perElement: [],
    ...{ name: 'dx', value: `(${value}) * scale`, type: dx },
  })
}
