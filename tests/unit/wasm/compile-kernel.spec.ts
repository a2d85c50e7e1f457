import { setFlagsFromString } from 'node:v8'
import { expect, test } from 'vitest'
import { halfValue } from '../../../src/util/half.ts'
import { compileKernel } from '../../../src/wasm/compile-kernel.ts'
import { runKernel } from '../../support/run-kernel.ts'
import { ulps, worstUlps } from '../../support/ulps.ts'

/** A shader whose invocation `i` writes `value`; `types`: of the arrays x and y. */
const each = (value: string, types = ['u32', 'u32'], count = 1000, more = '') => `
@group(0) @binding(0) var<storage, read> x: array<${types[0]}>;
@group(0) @binding(1) var<storage, read_write> y: array<${types[1]}>;
${more}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let i = group.x * 64u + thread;
  if (i >= ${count}u) { return; }
  y[i] = ${value};
}`

const groupsFor = (count: number): [number, number] => [Math.ceil(count / 64), 1]

/** Words of all sizes, from a linear congruential generator. */
function words(count: number): Uint32Array<ArrayBuffer> {
  let state = 1
  return Uint32Array.from({ length: count }, (_, i) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return i < 8
      ? [0, 1, 2, 3, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 2, 2 ** 32 - 1][i]
      : state >>> (i % 32)
  })
}

const compute = (value: string, count = 1003, more = '') => {
  const [, y] = runKernel(
    each(value, ['u32', 'u32'], count, more),
    [words(count), new Uint32Array(count)],
    groupsFor(count),
  )
  return y
}

test('compileKernel divides unsigned words by constants exactly', () => {
  for (const divisor of [3, 5, 7, 12, 1000, 65_537, 2 ** 31 + 11, 2 ** 32 - 1]) {
    const expected = words(1003)
    expect(compute(`x[i] / ${divisor}u`), `/ ${divisor}`).toEqual(
      expected.map((word) => Math.floor(word / divisor)),
    )
    expect(compute(`x[i] % ${divisor}u`), `% ${divisor}`).toEqual(
      expected.map((word) => word % divisor),
    )
  }
})

test('compileKernel gives the dividend for a quotient by 0, and 0 for its remainder', () => {
  expect(compute('x[i] / (x[i] & 0u)')).toEqual(words(1003))
  expect(compute('x[i] % (x[i] & 0u)')).toEqual(new Uint32Array(1003))
})

test('compileKernel keeps a word of a vector that changes, and builds vectors of words of others', () => {
  const more = `
fn mixed(given: vec4<u32>) -> vec4<u32> {
  var v = given;
  let kept = v.y;
  let low = vec4<u32>(v.w, v.w, v.x, v.z);
  v = v + vec4<u32>(100u);
  v.x += kept;
  return kept * v + vec4<u32>(low.y, v.x, low.z, v.w) + v.zzzz;
}`
  const x = Uint32Array.of(1, 2, 3, 4, 10, 20, 30, 40)
  const shader = each('mixed(x[i])', ['vec4<u32>', 'vec4<u32>'], 2, more)
  const [, y] = runKernel(shader, [x, new Uint32Array(8)], groupsFor(2))
  const of = (a: number, b: number, c: number, d: number) => {
    const v = [a + 100 + b, b + 100, c + 100, d + 100]
    const added = [d, v[0]!, a, v[3]!]
    return v.map((word, i) => b * word + added[i]! + v[2]!)
  }
  expect([...(y as Uint32Array)]).toEqual([...of(1, 2, 3, 4), ...of(10, 20, 30, 40)])
})

test('compileKernel keeps invocations separate when they leave loops and functions at different times', () => {
  const steps = `
fn steps(start: u32) -> u32 {
  var word = start;
  for (var n = 0u; n < 200u; n++) {
    if (word == 1u) { return n; }
    if (word % 2u == 0u) {
      word = word / 2u;
      continue;
    }
    if (word > 1000000u) { break; }
    word = 3u * word + 1u;
  }
  return 1000u + word % 7u;
}`
  const expected = words(1003).map((start) => {
    let word = start
    for (let n = 0; n < 200; n++) {
      if (word === 1) return n
      if (word % 2 === 0) {
        word /= 2
        continue
      }
      if (word > 1_000_000) break
      word = 3 * word + 1
    }
    return 1000 + (word % 7)
  })
  expect(compute('steps(x[i])', 1003, steps)).toEqual(expected)
})

test('compileKernel computes the right side of && and || only when it decides', () => {
  expect(compute('select(0u, 1u, i > 0u && x[i - 1u] > 1000u)')).toEqual(
    words(1003).map((_, i, all) => Number(i > 0 && all[i - 1] > 1000)),
  )
  expect(compute('select(0u, 1u, i == 0u || x[i - 1u] > 1000u)')).toEqual(
    words(1003).map((_, i, all) => Number(i === 0 || all[i - 1] > 1000)),
  )
})

test('compileKernel lets each invocation have arrays that it reads by computed numbers', () => {
  const rotated = `
fn rotated(word: u32) -> u32 {
  var digits: array<u32, 4>;
  for (var n = 0u; n < 4u; n++) { digits[n] = (word >> (8u * n)) & 255u; }
  let first = word % 4u;
  var sum = 0u;
  for (var n = 0u; n < 4u; n++) { sum = sum * 256u + digits[(first + n) % 4u]; }
  return sum;
}`
  const expected = words(1003).map((word) => {
    const digits = [0, 1, 2, 3].map((n) => (word >>> (8 * n)) & 255)
    return [0, 1, 2, 3].reduce((sum, n) => sum * 256 + digits[((word % 4) + n) % 4], 0)
  })
  expect(compute('rotated(x[i])', 1003, rotated)).toEqual(expected)
})

test('compileKernel adds over a workgroup with barriers, in functions and loops too', () => {
  const wgsl = `
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
const THREADS: u32 = 32u;
var<workgroup> sums: array<f32, THREADS>;
var<workgroup> seen: atomic<u32>;
fn total(thread: u32, value: f32) -> f32 {
  sums[thread] = value;
  workgroupBarrier();
  for (var stride = THREADS / 2u; stride > 0u; stride /= 2u) {
    if (thread < stride) { sums[thread] += sums[thread + stride]; }
    workgroupBarrier();
  }
  let result = sums[0];
  workgroupBarrier();
  return result;
}
@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  if (group.x >= 3u) { return; }
  let own = x[group.x * THREADS + thread];
  atomicAdd(&seen, thread);
  let mean = total(thread, own) / 32.0;
  var squares = 0.0;
  for (var n = 0u; n < 2u; n++) { squares += total(thread, (own - mean) * (own - mean)); }
  if (thread == 0u) { y[group.x] = squares + f32(atomicLoad(&seen)); }
}`
  const x = Float32Array.from({ length: 96 }, (_, i) => (i * 7) % 32)
  const [, y] = runKernel(wgsl, [x, new Float32Array(4)], [4, 1])
  // 0 to 31 in each workgroup: twice the sum of squared distances to 15.5, and the sum of its numbers.
  expect([...y]).toEqual([5456 + 496, 5456 + 496, 5456 + 496, 0])
})

/** Numbers of all sizes: every other one from 2^-7 to 2^4, the rest finite ones of any exponent. */
const sizes = Float32Array.from({ length: 500_000 }, (_, i) => {
  const step = Math.imul(i >> 1, 0x9e3779b1) >>> 0
  const [first, count] = i % 2 ? [120, 11] : [0, 255]
  const bits = (first << 23) + Math.floor((step / 2 ** 32) * count * 2 ** 23)
  return new Float32Array(Uint32Array.of((bits | ((i << 30) & (1 << 31))) >>> 0).buffer)[0]
})

test.each([
  ...(['exp', 'log', 'sqrt', 'rsqrt'] as const),
  ...(['tanh', 'sigmoid', 'softplus', 'erf', 'silu'] as const),
  ...(['bceLogits', 'bceLogitsWeighted'] as const),
])(
  'the elementwise function %s is within 2 units of the last place on the device cpu at numbers of all sizes',
  (fn) => {
    expect(worstUlps(fn, sizes)).toBeLessThanOrEqual(2)
  },
)

test.each(['gelu', 'geluTanh', 'geluGrad', 'geluTanhGrad', 'siluGrad'] as const)(
  'the elementwise function %s is within 2 units of the last place of 1 or x on the device cpu',
  (fn) => {
    expect(worstUlps(fn, sizes, undefined, (x) => Math.max(1, Math.abs(x)))).toBeLessThanOrEqual(2)
  },
)

test('both forms of gelu keep digits on the device cpu where they are small', () => {
  for (const fn of ['gelu', 'geluTanh'] as const)
    expect(worstUlps(fn, sizes, (x) => x > -5.5)).toBeLessThanOrEqual(128)
})

test('compileKernel computes powers within 1 unit of the last place, and their edges as C does', () => {
  const x = Float32Array.from({ length: 4000 }, (_, i) => 10 ** ((i % 63) / 9 - 3))
  const [, y] = runKernel(
    each('pow(x[i], f32(i % 41u) / 7.0 - 3.0)', ['f32', 'f32'], 4000),
    [x, new Float32Array(4000)],
    groupsFor(4000),
  )
  const exponent = (i: number) => Math.fround(Math.fround((i % 41) / 7) - 3)
  const worst = y.reduce((max, got, i) => Math.max(max, ulps(got, x[i] ** exponent(i))), 0)
  expect(worst).toBeLessThanOrEqual(1)
  const edges = [0, Number.POSITIVE_INFINITY, 1, Number.NaN, -1]
  const [, z] = runKernel(
    each(
      'pow(x[i / 3u], select(select(-2.0, 0.0, i % 3u == 1u), 2.0, i % 3u == 2u))',
      ['f32', 'f32'],
      15,
    ),
    [Float32Array.from(edges), new Float32Array(16)],
  )
  const { NaN: none, POSITIVE_INFINITY: infinity } = Number
  const expected = [infinity, 1, 0, 0, 1, infinity, 1, 1, 1, none, 1, none, none, 1, none]
  expect([...z.slice(0, 15)]).toEqual(expected)
})

test('compileKernel joins products with sums only where isRelaxed is set and no factor has changed since', () => {
  // Node 20 has the instruction behind this flag.
  setFlagsFromString('--experimental-wasm-relaxed-simd')
  const own = `
fn own(given: f32) -> f32 {
  var x = given;
  var sum = 1.0;
  let kept = x * x;
  let joined = x * 3.0 + sum;
  x = x + 1.0;
  sum = sum + kept;
  for (var n = 0u; n < 3u; n++) {
    sum = sum + kept;
    x = x + 1.0;
    if (x > 40.0) { sum = sum + kept * x; } else { sum = x * x + kept; }
    sum = sum * 0.5 + x;
  }
  return sum + joined;
}`
  const wgsl = each('own(x[i])', ['f32', 'f32'], 64, own)
  // Sums of these have no rounding, so that joined instructions give the same.
  const x = Float32Array.from({ length: 64 }, (_, i) => i)
  const outputs = [false, true].map(
    (isRelaxed) => runKernel(wgsl, [x, new Float32Array(64)], [1, 1], { isRelaxed })[1],
  )
  expect(outputs[1]).toEqual(outputs[0])
  const joined = [false, true].map((isRelaxed) => {
    const code = compileKernel(wgsl, { isRelaxed }).code
    return code.filter((byte, i) => byte === 0xfd && code[i + 1] === 0x85 && code[i + 2] === 0x02)
      .length
  })
  expect(joined[0]).toBe(0)
  expect(joined[1]).toBeGreaterThan(2)
})

test('compileKernel unpacks all halves exactly', () => {
  const x = Uint32Array.from({ length: 65_536 }, (_, i) => i)
  const [, y] = runKernel(
    each('unpack2x16float(x[i]).x', ['u32', 'f32'], 65_536),
    [x, new Float32Array(65_536)],
    groupsFor(65_536),
  )
  expect(y.every((got, i) => Object.is(got, halfValue(i)))).toBe(true)
})

test('compileKernel gives exp and log their edges', () => {
  const { NaN: none, POSITIVE_INFINITY: infinity } = Number
  const x = Float32Array.of(none, infinity, -infinity, 0, -0, -1, 1e-45, 200, -200)
  const run = (name: string) => [
    ...runKernel(each(`${name}(x[i])`, ['f32', 'f32'], 9), [x, new Float32Array(9)])[1],
  ]
  expect(run('exp')).toEqual([none, infinity, 0, 1, 1, Math.fround(Math.exp(-1)), 1, infinity, 0])
  const tiny = Math.fround(Math.log(2 ** -149))
  expect(run('log')).toEqual([
    none,
    infinity,
    none,
    -infinity,
    -infinity,
    none,
    tiny,
    Math.fround(Math.log(200)),
    none,
  ])
})

test.each([
  ['fn main() { let x = 1 }', /line 1: expected ";", got "}"/],
  [
    '@compute @workgroup_size(1)\nfn main() { let y = sinh(1.0); }',
    /line 2: there is no function or type "sinh"/,
  ],
  ['@compute @workgroup_size(1)\nfn main() {\n  x = 1.0;\n}', /line 3: unknown name "x"/],
  ['var<uniform> x: f32;', /line 1: variables in "uniform" are not supported/],
])('compileKernel names the line when a shader is wrong: %j', (wgsl, error) => {
  expect(() => compileKernel(wgsl)).toThrow(error)
})
