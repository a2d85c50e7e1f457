/** Floats in 16 bits, as hooks send them. */
export type WireNumber = 'f16' | 'bf16'

const float = new Float32Array(1)
const word = new Uint32Array(float.buffer)

/** The bits of the nearest float16, ties to even; beyond 65504 infinite. */
function halfBits(value: number): number {
  float[0] = value
  const bits = word[0]
  const sign = (bits >>> 16) & 0x8000
  const magnitude = bits & 0x7fff_ffff
  if (magnitude > 0x7f80_0000) return sign | 0x7e00
  // 65520 and more round to infinity.
  if (magnitude >= 0x477f_f000) return sign | 0x7c00
  if (magnitude < 0x3880_0000) {
    // Below 2^-14 in steps of 2^-24: adding 0.5 leaves the steps as the lowest bits, rounded by the hardware.
    float[0] = Math.fround(Math.abs(value)) + 0.5
    return sign | (word[0] - 0x3f00_0000)
  }
  const rounded = magnitude - 0x3800_0000 + 0xfff + ((magnitude >>> 13) & 1)
  return sign | (rounded >>> 13)
}

function fromHalf(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1
  const exponent = (bits >>> 10) & 31
  const fraction = bits & 1023
  if (exponent === 31) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY
  if (exponent === 0) return sign * fraction * 2 ** -24
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15)
}

/** The upper half of the float, ties to even. */
function brainBits(value: number): number {
  float[0] = value
  const bits = word[0]
  if ((bits & 0x7fff_ffff) > 0x7f80_0000) return (bits >>> 16) | 0x40
  return ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff
}

function fromBrain(bits: number): number {
  word[0] = bits << 16
  return float[0]
}

/** The values rounded to 16 bits each; little-endian. */
export function encodeWire(values: Float32Array, wire: WireNumber): Uint8Array<ArrayBuffer> {
  const toBits = wire === 'f16' ? halfBits : brainBits
  const bits = new Uint16Array(values.length)
  for (let i = 0; i < values.length; i++) bits[i] = toBits(values[i])
  return new Uint8Array(bits.buffer)
}

/** target[i] += value i of `bytes`. */
export function addWire(bytes: Uint8Array, wire: WireNumber, target: Float32Array): void {
  const toFloat = wire === 'f16' ? fromHalf : fromBrain
  for (let i = 0; i < target.length; i++) {
    target[i] += toFloat(bytes[2 * i] | (bytes[2 * i + 1] << 8))
  }
}
