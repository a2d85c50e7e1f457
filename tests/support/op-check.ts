import { roundHalf, unpackHalves } from '../../src/kernels/half.ts'
import type { Case, HostArray, Op, OpCall, Tolerance, Variant } from '../../src/kernels/op.ts'
import { RandomStream } from '../../src/util/random.ts'
import { countElements, formatShape, type TensorType } from '../../src/util/shape.ts'
import { type OpRun, runOp } from './run-op.ts'

/** The seed of every op test; a failure prints it. */
export const defaultSeed = 1

/** A standard normal number (Box and Muller). */
function normal(source: RandomStream): number {
  const radius = Math.sqrt(-2 * Math.log(1 - source.unit()))
  return radius * Math.cos(2 * Math.PI * source.unit())
}

/**
 * Contents of a tensor after a case's `fill`, exact in its dtype.
 *
 * `huge` draws magnitudes evenly over the powers of ten from 0.1 to 1e4.
 */
export function drawTensor(
  type: TensorType,
  fill: Case['fill'],
  seed: number,
  stream: number,
  integerBelow = 10,
): HostArray {
  const source = new RandomStream(seed, stream)
  const count = countElements(type.shape)
  if (type.dtype !== 'f32' && type.dtype !== 'f16') {
    const values = type.dtype === 'i32' ? new Int32Array(count) : new Uint32Array(count)
    return values.map(() => source.below(integerBelow))
  }
  const draw = {
    normal: () => normal(source),
    positive: () => 0.1 + Math.abs(normal(source)),
    huge: () => (source.below(2) === 0 ? -1 : 1) * 10 ** source.between(-1, 4),
    ties: () => source.below(5) - 2,
  }[fill ?? 'normal']
  const store = type.dtype === 'f16' ? roundHalf : Math.fround
  return Float64Array.from({ length: count }, () => store(draw()))
}

/** The call of a case, with its output types. */
export function callOf<A>(op: Op<A>, { inputs, attrs }: Case<A>): OpCall<A> {
  return { inputs, outputs: op.infer(inputs, attrs), attrs }
}

/** All inputs of a case. */
export const drawInputs = <A>(test: Case<A>, seed = defaultSeed): HostArray[] =>
  test.inputs.map((type, i) => {
    const values = drawTensor(type, test.fill, seed, i, test.integerBelow?.[i])
    return test.nonNegative?.includes(i) ? values.map(Math.abs) : values
  })

/**
 * Says what is wrong with `got`, or returns undefined.
 *
 * Integers compare exactly. Floats: NaN, +Inf and -Inf are three different values that only equal themselves; finite
 * numbers may differ by absolute * scale + relative * |expected|.
 */
export function difference(
  got: Uint32Array,
  expected: HostArray,
  type: TensorType,
  { absolute, relative }: Tolerance,
  scale = 1,
): string | undefined {
  const words = type.dtype === 'f16' ? Math.ceil(expected.length / 2) : expected.length
  if (got.length !== words) return `expected ${words} words, got ${got.length}`
  const isFloat = type.dtype === 'f32' || type.dtype === 'f16'
  const values =
    type.dtype === 'f16'
      ? unpackHalves(got, expected.length)
      : type.dtype === 'f32'
        ? new Float32Array(got.buffer, got.byteOffset, got.length)
        : type.dtype === 'i32'
          ? new Int32Array(got.buffer, got.byteOffset, got.length)
          : got
  /** How many times the allowed difference; above 1 is bad. */
  const excess = (index: number): number => {
    const e = expected[index]
    const g = values[index]
    if (!isFloat) return g === e ? 0 : Number.POSITIVE_INFINITY
    const rounded = type.dtype === 'f16' ? roundHalf(e) : Math.fround(e)
    if (!Number.isFinite(rounded) || !Number.isFinite(g)) {
      return Object.is(rounded, g) ? 0 : Number.POSITIVE_INFINITY
    }
    const distance = Math.abs(g - e)
    // Near the middle of two halves a rounding may go either way.
    const oneHalf = type.dtype === 'f16' ? Math.max(2 ** -10 * Math.abs(e), 2 ** -24) : 0
    return distance === 0 ? 0 : distance / (absolute * scale + relative * Math.abs(e) + oneHalf)
  }
  const bad: number[] = []
  let worst = -1
  let worstExcess = 1
  for (let index = 0; index < expected.length; index++) {
    const now = excess(index)
    if (now <= 1) continue
    bad.push(index)
    if (now > worstExcess) {
      worst = index
      worstExcess = now
    }
  }
  if (bad.length === 0) return undefined
  const pair = (index: number) => `[${index}] expected ${expected[index]}, got ${values[index]}`
  return [
    `${bad.length} of ${expected.length} elements of ${type.dtype}${formatShape(type.shape)} are wrong`,
    `worst: ${pair(worst)} (${worstExcess.toPrecision(3)} times the tolerance)`,
    ...bad.slice(0, 5).map((index) => `  ${pair(index)}`),
  ].join('\n')
}

/** For `huge` cases the absolute tolerance grows with the tensor's largest magnitude, since terms cancel. */
function scaleOf(test: Case, expected: HostArray): number {
  let scale = 1
  if (test.fill !== 'huge') return scale
  for (const value of expected) if (Number.isFinite(value)) scale = Math.max(scale, Math.abs(value))
  return scale
}

/**
 * Runs one variant on one case, twice, and returns everything that is wrong, or undefined.
 *
 * Checked: outputs and updated inputs against the reference, guard words, untouched inputs, nothing unwritten, and
 * equal bits in both runs.
 */
export async function checkCase<A>(
  op: Op<A>,
  variant: Variant<A>,
  test: Case<A>,
  seed = defaultSeed,
): Promise<string | undefined> {
  const call = callOf(op, test)
  const inputs = drawInputs(test, seed)
  const referenceInputs = inputs.map((values) => values.slice())
  // The scalars buffer holds float32, so the reference reads the rounded numbers too.
  const scalars = (test.scalars ?? []).map(Math.fround)
  const expected = op.reference(referenceInputs, call, scalars)
  // A view has no kernel; its output is its input's memory.
  if (op.isView) return undefined
  const run = await runOp(op, variant, call, inputs, scalars)
  const again = await runOp(op, variant, call, inputs, scalars)

  const updated = op.updates ?? []
  const wanted = [...expected, ...updated.map((i) => referenceInputs[i])]
  const types = [...call.outputs, ...updated.map((i) => call.inputs[i])]
  const names = [
    ...call.outputs.map((_, i) => `output ${i}`),
    ...updated.map((i) => `updated input ${i}`),
  ]
  const words = (of: OpRun) => [...of.outputs, ...of.updated]
  const problems: string[] = []
  if (expected.length !== call.outputs.length) {
    problems.push(
      `the reference returns ${expected.length} outputs, infer says ${call.outputs.length}`,
    )
  }
  words(run).forEach((got, i) => {
    const scale = scaleOf(test as Case, wanted[i])
    const wrong = difference(got, wanted[i], types[i], op.tolerance, scale)
    if (wrong) problems.push(`${names[i]}: ${wrong}`)
    const second = words(again)[i]
    const differing = got.findIndex((word, at) => word !== second[at])
    if (differing >= 0) problems.push(`${names[i]}: two runs differ, first at [${differing}]`)
  })
  if (run.unwritten > 0) problems.push(`${run.unwritten} output elements were never written`)
  if (!run.guardsIntact) problems.push('a guard word was overwritten: a write outside the tensor')
  if (!run.inputsIntact) problems.push('an input that is only read was changed')
  return problems.length === 0
    ? undefined
    : [`${op.name}, variant ${variant.name}, case "${test.name}", seed ${seed}:`, ...problems].join(
        '\n',
      )
}
