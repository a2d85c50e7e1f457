import { erf, erfLines, erfPlusOneLines } from './erf.ts'
import { log1pLines, scalarTable, sigmoid, sigmoidLines, softplus } from './scalar-function.ts'

const sqrtHalf = Math.SQRT1_2
const sqrtTwoOverPi = Math.sqrt(2 / Math.PI)
const cubic = 0.044715
/** 1 / sqrt(2 pi) */
const densityAtZero = 1 / Math.sqrt(2 * Math.PI)

/**
 * Lines that set `$sigma` and `$rest` of twice the tanh form's argument: 0.5 (1 + tanh u) is sigmoid(2 u), which has
 * no cancellation. `$x` is the operand, held where the cube is finite: beyond 20 the result is 0 or x.
 */
const tanhFormLines = (a: string): string[] => [
  `$x = clamp(${a}, -20.0, 20.0)`,
  `$twice = ${2 * sqrtTwoOverPi} * $x * (1.0 + ${cubic} * $x * $x)`,
  ...sigmoidLines('$twice'),
]

export const activations = scalarTable({
  /** `max` may drop a NaN. */
  relu: {
    arity: 1,
    wgsl: (a) => `select(max(${a}, 0.0), ${a}, is_nan(${a}))`,
    reference: (a) => Math.max(a, 0),
  },
  /** dx of relu from dy and the *output* y. */
  reluGrad: {
    arity: 2,
    wgsl: (dy, y) => `select(${dy}, 0.0, ${y} <= 0.0)`,
    reference: (dy, y) => (y <= 0 ? 0 : dy),
  },
  leakyRelu: {
    arity: 2,
    wgsl: (a, slope) => `select(${a} * ${slope}, ${a}, ${a} > 0.0)`,
    reference: (a, slope) => (a > 0 ? a : a * slope),
  },
  sigmoid: { arity: 1, wgsl: (a) => [...sigmoidLines(a), '$sigma'], reference: sigmoid },
  /**
   * By exp(-2 |a|), which cannot overflow, and near 0, where that would cancel, by a polynomial.
   *
   * source: Cephes (Moshier, tanhf.c).
   */
  tanh: {
    arity: 1,
    wgsl: (a) => [
      `$t = exp(-2.0 * abs(${a}))`,
      `$q = ${a} * ${a}`,
      '$inner = 0.053739715 - $q * (0.02063909 - $q * 0.0057049887)',
      `$near = abs(${a}) - abs(${a}) * $q * (0.33333282 - $q * (0.13331442 - $q * $inner))`,
      `$size = select((1.0 - $t) / (1.0 + $t), $near, abs(${a}) < 0.625)`,
      `select($size, -$size, ${a} < 0.0)`,
    ],
    reference: Math.tanh,
  },
  erf: {
    arity: 1,
    wgsl: (a) => [...erfLines(a), `select($erf, ${a}, is_nan(${a}))`],
    reference: erf,
  },
  /** x Phi(x) */
  gelu: {
    arity: 1,
    wgsl: (a) => [
      `$scaled = ${a} * ${sqrtHalf}`,
      ...erfPlusOneLines('$scaled'),
      `0.5 * ${a} * $both`,
    ],
    reference: (a) => 0.5 * a * (1 + erf(a * sqrtHalf)),
  },
  /** dx of gelu from dy and the input x: Phi(x) + x phi(x). */
  geluGrad: {
    arity: 2,
    wgsl: (dy, a) => [
      `$scaled = ${a} * ${sqrtHalf}`,
      ...erfPlusOneLines('$scaled'),
      `${dy} * (0.5 * $both + ${a} * ${densityAtZero} * exp(-$scaled * $scaled))`,
    ],
    reference: (dy, a) =>
      dy * (0.5 * (1 + erf(a * sqrtHalf)) + a * densityAtZero * Math.exp((-a * a) / 2)),
  },
  /** The tanh form: x 0.5 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))). */
  geluTanh: {
    arity: 1,
    wgsl: (a) => [...tanhFormLines(a), `${a} * $sigma`],
    reference: (a) => a * sigmoid(2 * sqrtTwoOverPi * (a + cubic * a ** 3)),
  },
  /** dx of geluTanh from dy and the input x. */
  geluTanhGrad: {
    arity: 2,
    wgsl: (dy, a) => [
      ...tanhFormLines(a),
      `$slope = ${2 * sqrtTwoOverPi} * (1.0 + ${3 * cubic} * $x * $x)`,
      `${dy} * ($sigma + ${a} * $sigma * $rest * $slope)`,
    ],
    reference: (dy, a) => {
      const twice = 2 * sqrtTwoOverPi * (a + cubic * a ** 3)
      const slope = 2 * sqrtTwoOverPi * (1 + 3 * cubic * a * a)
      return dy * (sigmoid(twice) + a * sigmoid(twice) * sigmoid(-twice) * slope)
    },
  },
  /**
   * a / (1 + exp(-a)), below 0 less what the sum lost by its rounding, over the sum to an eighth's precision.
   *
   * Far below 0 by exp(-37 - a) and exp(-37), which is a float32 to 0.007 ulp: exp(a) is not normal there.
   */
  silu: {
    arity: 1,
    wgsl: (a) => [
      `$isFar = ${a} < -87.0`,
      `$t = exp(-(${a} + select(0.0, 37.0, $isFar)))`,
      '$whole = 1.0 + $t',
      `$quotient = ${a} / $whole`,
      '$inverse = bitcast<f32>(0x7ef311c3u - bitcast<u32>($whole))',
      '$less = $quotient * (1.0 - ($whole - $t)) * $inverse',
      `$near = select($quotient, $quotient - $less, ${a} < 0.0)`,
      `select($near, $quotient * ${Math.exp(-37)}, $isFar)`,
    ],
    reference: (a) => a * sigmoid(a),
  },
  /** dx of silu from dy and the input x. */
  siluGrad: {
    arity: 2,
    wgsl: (dy, a) => [...sigmoidLines(a), `${dy} * $sigma * (1.0 + ${a} * $rest)`],
    reference: (dy, a) => dy * sigmoid(a) * (1 + a * sigmoid(-a)),
  },
  /** log(1 + exp(beta x)) / beta, and x itself where beta x is above the threshold. */
  softplus: {
    arity: 3,
    wgsl: (a, beta, threshold) => [
      `$scaled = ${a} * ${beta}`,
      ...log1pLines('$scaled'),
      // Of a NaN, exp may be any number on a GPU.
      '$softplus = select((max($scaled, 0.0) - $less) + $u, $scaled, is_nan($scaled))',
      `select($softplus / ${beta}, ${a}, $scaled > ${threshold})`,
    ],
    reference: (a, beta, threshold) => (a * beta > threshold ? a : softplus(a * beta) / beta),
  },
})
