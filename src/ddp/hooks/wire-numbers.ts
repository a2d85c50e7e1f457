/** 16-bit float formats that hooks can send. */
export type WireType = 'f16' | 'bf16'

const float = new Float32Array(1)
const word = new Uint32Array(float.buffer)

/** The upper half of a float's bits, to the nearest, ties to even. */
function brainBits(value: number): number {
  float[0] = value
  const bits = word[0]
  if ((bits & 0x7fff_ffff) > 0x7f80_0000) return (bits >>> 16) | 0x40
  return ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff
}

function brainValue(bits: number): number {
  word[0] = bits << 16
  return float[0]
}

/** The values as bfloat16, little-endian. */
export function encodeBrain(values: Float32Array): Uint8Array<ArrayBuffer> {
  return new Uint8Array(Uint16Array.from(values, brainBits).buffer)
}

/** target[i] += value i of `bytes`. */
export function addBrain(bytes: Uint8Array, target: Float32Array): void {
  for (let i = 0; i < target.length; i++) {
    target[i] += brainValue(bytes[2 * i] | (bytes[2 * i + 1] << 8))
  }
}
