import { parse } from '../wgsl/parse.ts'
import type { FunctionDeclaration } from '../wgsl/syntax.ts'

/**
 * The functions of WGSL that WebAssembly lacks, in WGSL: only additions, products and bits, so that all engines and machines give the same bits.
 *
 * numerics: within 2 ulp where the result is normal. NaN gives NaN.
 * source: the polynomials of exp and log are those of Cephes (Moshier, expf.c and logf.c).
 */
const texts = {
  exp_of_f32: /* wgsl */ `
fn exp_of_f32(given: f32) -> f32 {
  let x = min(max(given, -104.0), 89.0);
  let n = round(x * 1.4426950408889634);
  let r = x - n * 0.693359375 - n * -2.12194440e-4;
  // Three sums side by side: an engine takes less time than for six in a row.
  let z = r * r;
  let a = ((1.9875691500e-4 * r + 1.3981999507e-3) * z + (8.3334519073e-3 * r + 4.1665795894e-2)) * z + (1.6666665459e-1 * r + 5.0000001201e-1);
  let y = a * z + r + 1.0;
  // 2^n in two factors, as the first alone may pass the largest number or be too small.
  let half = i32(n) >> 1u;
  let rest = i32(n) - half;
  return y * bitcast<f32>((half + 127) << 23u) * bitcast<f32>((rest + 127) << 23u);
}
`,
  log_of_f32: /* wgsl */ `
fn log_of_f32(x: f32) -> f32 {
  let is_small = x < 0x1p-126f;
  let scaled = select(x, x * 8388608.0, is_small);
  let bits = bitcast<u32>(scaled);
  // The mantissa from 1/sqrt(2) on.
  let moved = bits + 0x4afb0du;
  let exponent = f32(i32(moved >> 23u) - 127) - select(0.0, 23.0, is_small);
  let m = bitcast<f32>((moved & 0x7fffffu) + 0x3f3504f3u) - 1.0;
  let z = m * m;
  let a = (((7.0376836292e-2 * m - 1.1514610310e-1) * m + 1.1676998740e-1) * m - 1.2420140846e-1) * m + 1.4249322787e-1;
  let b = (((a * m - 1.6668057665e-1) * m + 2.0000714765e-1) * m - 2.4999993993e-1) * m + 3.3333331174e-1;
  let y = m * z * b + exponent * -2.12194440e-4 - 0.5 * z;
  let inside = m + y + exponent * 0.693359375;
  let edge = select(bitcast<f32>(0x7fc00000u), select(-bitcast<f32>(0x7f800000u), x, x > 0.0), x >= 0.0);
  return select(edge, inside, x > 0.0 && x <= 0x1.fffffep+127f);
}
`,
  f32_of_half: /* wgsl */ `
fn f32_of_half(bits: u32) -> f32 {
  let size = bits & 0x7fffu;
  let finite = bitcast<f32>(size << 13u) * 0x1p+112f;
  let magnitude = select(finite, bitcast<f32>((size << 13u) | 0x7f800000u), size >= 0x7c00u);
  return select(magnitude, -magnitude, (bits & 0x8000u) != 0u);
}
`,
}
export type PreludeName = keyof typeof texts

const parsed = new Map<PreludeName, FunctionDeclaration>()

export function preludeFunction(name: PreludeName): FunctionDeclaration {
  const own = parsed.get(name) ?? parse(texts[name]).functions.get(name)!
  parsed.set(name, own)
  return own
}
