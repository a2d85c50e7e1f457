import { formatShape, type TensorType } from '../util/shape.ts'
import { roundHalf, unpackHalves } from './half.ts'
import type { HostArray, Tolerance } from './op.ts'

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
