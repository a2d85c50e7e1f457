import { halfBits, halfValue } from '../util/half.ts'

/**
 * Tensors of dtype f16: two elements to a 32-bit word, the first in the low half, as `array<f16>` would have them.
 *
 * Kernels bind them as `u32` (or `vec2<u32>` for 4 neighbours), compute in f32 and convert at loads and stores by the
 * functions below, which need no `shader-f16`. `dispatch` puts them in front of a shader that names one.
 */
const loads = `fn half_of(word: u32, i: u32) -> f32 { return unpack2x16float(word >> ((i & 1u) * 16u)).x; }
fn halves_of(words: vec2<u32>) -> vec4<f32> { return vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y)); }`

/**
 * Rounds to nearest, ties to even, too large to infinity, by integers: WGSL's own conversions leave the direction open and
 * what overflows undefined, and a loss scaler lives by overflows.
 * source: Fabian Giesen's float_to_half_fast3_rtne.
 */
const stores = `fn half_bits(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  let size = bits & 0x7fffffffu;
  let normal = (size + 0xc8000fffu + ((size >> 13u) & 1u)) >> 13u;
  let small = bitcast<u32>(bitcast<f32>(min(size, 0x38800000u)) + 0.5) - 0x3f000000u;
  let large = select(0x7c00u, 0x7e00u, size > 0x7f800000u);
  return ((bits >> 16u) & 0x8000u) | select(select(normal, small, size < 0x38800000u), large, size >= 0x47800000u);
}
fn pack_half(a: f32, b: f32) -> u32 { return half_bits(a) | (half_bits(b) << 16u); }
fn round_half(x: f32) -> f32 { return unpack2x16float(half_bits(x)).x; }`

/** The functions that a shader's body needs, as text in front of it. */
export const halfFunctions = (body: string): string =>
  [
    /\bhal(?:f|ves)_of\(/.test(body) ? `${loads}\n\n` : '',
    /\b(?:pack|round)_half\(/.test(body) ? `${stores}\n\n` : '',
  ].join('')

/** What storing a number as f16 makes of it; it is rounded to f32 before, as on a device. */
export const roundHalf = (value: number): number => halfValue(halfBits(Math.fround(value)))

/** What a reference computed as an op of these attrs stores it. */
export const storedAs = (
  { half }: { readonly half?: boolean },
  values: Float64Array,
): Float64Array => (half ? values.map(roundHalf) : values)

/** The floats in packed words. */
export const unpackHalves = (words: Uint32Array, count: number): Float32Array<ArrayBuffer> =>
  Float32Array.from({ length: count }, (_, i) =>
    halfValue((words[i >> 1] >>> ((i & 1) * 16)) & 0xffff),
  )
