/**
 * WGSL functions that treat NaN, infinities and zeros as IEEE has it; `dispatch` puts those that a shader names in front of it.
 *
 * WGSL lets compilers assume that f32 arithmetic sees neither, so what decides about them reads bits. SwiftShader's exp makes infinity of
 * a NaN, for example, and its log infinity.
 */
const notANumber = (of: string) => `bitcast<f32>((bitcast<u32>(${of}) & 0u) | 0x7fc00000u)`
const infinity = (of: string) => `bitcast<f32>((bitcast<u32>(${of}) & 0u) | 0x7f800000u)`

const functions: Readonly<Record<string, string>> = {
  is_nan: 'fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }',
  exp_of: 'fn exp_of(x: f32) -> f32 { return select(exp(x), x, is_nan(x)); }',
  exp4_of: `fn exp4_of(x: vec4<f32>) -> vec4<f32> {
  return select(exp(x), x, (bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u));
}`,
  log_of: `fn log_of(x: f32) -> f32 {
  return select(select(log(x), -${infinity('x')}, x == 0.0), ${notANumber('x')}, x < 0.0 || is_nan(x));
}`,
  min_of:
    'fn min_of(a: f32, b: f32) -> f32 { return select(min(a, b), a + b, is_nan(a) || is_nan(b)); }',
  max_of:
    'fn max_of(a: f32, b: f32) -> f32 { return select(max(a, b), a + b, is_nan(a) || is_nan(b)); }',
  // 0 times x, which compilers fold to 0.
  zero_times: `fn zero_times(x: f32) -> f32 {
  return select(0.0, ${notANumber('x')}, (bitcast<u32>(x) & 0x7f800000u) == 0x7f800000u);
}`,
  // From 2^23 on every number is whole, from 2^24 on even.
  pow_of: `fn pow_of(a: f32, b: f32) -> f32 {
  let size = select(pow(abs(a), b), select(${infinity('a')}, 0.0, b > 0.0), a == 0.0);
  let is_whole = abs(b) >= 8388608.0 || b == floor(b);
  let is_odd = is_whole && abs(b) < 16777216.0 && fract(abs(b) * 0.5) > 0.25;
  let signed = select(size, -size, is_odd && (bitcast<u32>(a) >> 31u) == 1u);
  let has_none = is_nan(a) || is_nan(b) || (a < 0.0 && a >= -0x1.fffffep+127f && !is_whole);
  let is_one = b == 0.0 || a == 1.0 || (a == -1.0 && abs(b) >= 16777216.0);
  return select(select(signed, ${notANumber('a')}, has_none), 1.0, is_one);
}`,
}

const names = Object.keys(functions)
const namesIn = (text: string): string[] => names.filter((name) => text.includes(`${name}(`))

/** The functions that a shader's body needs, as text in front of it. */
export function specialFunctions(body: string): string {
  const used = new Set(namesIn(body).flatMap((name) => [...namesIn(functions[name]), name]))
  return names.flatMap((name) => (used.has(name) ? [`${functions[name]}\n\n`] : [])).join('')
}
