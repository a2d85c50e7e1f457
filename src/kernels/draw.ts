import { RandomStream } from '../util/random.ts'
import { countElements, type TensorType } from '../util/shape.ts'
import { roundHalf } from './half.ts'
import type { Case, HostArray, Op, OpCall } from './op.ts'

// The contents of an op's cases, drawn from a seed: for the specs, the self-test page and scripts that run one case.

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
    zeros: () => 0,
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
