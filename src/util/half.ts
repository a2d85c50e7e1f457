/**
 * IEEE half precision on the host, as 16 bits in a Uint16Array.
 *
 * Tables as in Jeroen van der Zijp, Fast Half Float Conversions (2008); rounding to the nearest, ties to even.
 */

const floats = new Float32Array(1)
const words = new Uint32Array(floats.buffer)

/** The 16 bits nearest to `value`, ties to even; too large ones become infinite. */
export function halfBits(value: number): number {
  floats[0] = value
  const bits = words[0]
  const sign = (bits >>> 16) & 0x8000
  const magnitude = bits & 0x7fffffff
  if (magnitude > 0x7f800000) return sign | 0x7e00
  // 65520 and more round to infinity.
  if (magnitude >= 0x477ff000) return sign | 0x7c00
  if (magnitude < 0x38800000) {
    // Below 2^-14 halves are multiples of 2^-24: float32 itself rounds where 2^-24 is its last place.
    floats[0] = Math.abs(value) + 0.5
    return sign | (words[0] - 0x3f000000)
  }
  const isOdd = (magnitude >>> 13) & 1
  return sign | ((magnitude - 0x38000000 + 0xfff + isOdd) >>> 13)
}

/** What one step of the fraction is worth, by exponent. */
const steps = Float64Array.from({ length: 31 }, (_, exponent) => 2 ** (Math.max(exponent, 1) - 25))

/** The number that 16 bits mean; exact. */
export function halfValue(bits: number): number {
  const exponent = (bits >>> 10) & 31
  const fraction = bits & 1023
  const magnitude =
    exponent < 31
      ? (exponent === 0 ? fraction : 1024 + fraction) * steps[exponent]
      : fraction === 0
        ? Number.POSITIVE_INFINITY
        : Number.NaN
  return bits & 0x8000 ? -magnitude : magnitude
}
