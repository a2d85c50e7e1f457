import { roundHalf } from '../half.ts'
import { literalValue, type ScalarFunction, scalarTable } from './scalar-function.ts'

/** Whole exponents up to this one become products, which are exact to a rounding each and keep the sign. */
const largestProduct = 8

/** Lines that raise `a` to `exponent`, by squaring. */
function productLines(a: string, exponent: number): string[] {
  const lines: string[] = []
  let result: string | undefined
  let square = a
  for (let rest = Math.abs(exponent), n = 0; rest > 0; rest = Math.floor(rest / 2), n++) {
    if (n > 0) {
      lines.push(`$square${n} = ${square} * ${square}`)
      square = `$square${n}`
    }
    if (rest % 2 === 0) continue
    if (result === undefined) result = square
    else {
      lines.push(`$product${n} = ${result} * ${square}`)
      result = `$product${n}`
    }
  }
  return [...lines, exponent < 0 ? `(1.0 / ${result})` : `${result}`]
}

/** C's pow, which is 1 for a base of 1 whatever the exponent, and a square root for its exponents. */
function power(a: number, b: number): number {
  if (a === 1 || (a === -1 && Math.abs(b) === Number.POSITIVE_INFINITY)) return 1
  if (Math.abs(b) === 0.5) return b > 0 ? Math.sqrt(a) : 1 / Math.sqrt(a)
  return a ** b
}

const pow: ScalarFunction = {
  arity: 2,
  wgsl(a, b) {
    const exponent = literalValue(b)
    if (exponent === 0) return '1.0'
    if (exponent === 0.5) return `sqrt(${a})`
    if (exponent === -0.5) return `(1.0 / sqrt(${a}))`
    if (exponent !== undefined && Number.isInteger(exponent)) {
      if (Math.abs(exponent) <= largestProduct) return productLines(a, exponent)
    }
    return literalValue(a) === 1 ? '1.0' : `pow_of(${a}, ${b})`
  },
  reference: power,
}

/** The smaller or larger of two; a NaN on either side is the result. */
const extreme = (name: 'min' | 'max'): ScalarFunction => ({
  arity: 2,
  wgsl: (a, b) => `${name}_of(${a}, ${b})`,
  reference: (a, b) => Math[name](a, b),
})

export const arithmetic = scalarTable({
  add: { arity: 2, wgsl: (a, b) => `(${a} + ${b})`, reference: (a, b) => a + b },
  sub: { arity: 2, wgsl: (a, b) => `(${a} - ${b})`, reference: (a, b) => a - b },
  mul: {
    arity: 2,
    wgsl(a, b) {
      if (literalValue(a) === 0) return `zero_times(${b})`
      return literalValue(b) === 0 ? `zero_times(${a})` : `(${a} * ${b})`
    },
    reference: (a, b) => a * b,
  },
  div: { arity: 2, wgsl: (a, b) => `(${a} / ${b})`, reference: (a, b) => a / b },
  neg: { arity: 1, wgsl: (a) => `(-${a})`, reference: (a) => -a },
  square: { arity: 1, wgsl: (a) => `(${a} * ${a})`, reference: (a) => a * a },
  exp: { arity: 1, wgsl: (a) => `exp_of(${a})`, reference: Math.exp },
  log: { arity: 1, wgsl: (a) => `log_of(${a})`, reference: Math.log },
  sqrt: { arity: 1, wgsl: (a) => `sqrt(${a})`, reference: Math.sqrt },
  /** sqrt whose gradient at 0 is 0: norms and standard deviations. */
  root: { arity: 1, wgsl: (a) => `sqrt(${a})`, reference: Math.sqrt },
  // inverseSqrt may err by 2 ULP; the quotient is closer.
  rsqrt: { arity: 1, wgsl: (a) => `(1.0 / sqrt(${a}))`, reference: (a) => 1 / Math.sqrt(a) },
  pow,
  abs: { arity: 1, wgsl: (a) => `abs(${a})`, reference: Math.abs },
  /** 0 for NaN, as torch.sign. */
  sign: { arity: 1, wgsl: (a) => `sign(${a})`, reference: (a) => Math.sign(a) || 0 },
  floor: { arity: 1, wgsl: (a) => `floor(${a})`, reference: Math.floor },
  /** Rounded as f16 stores it; stands in joined chains alone, where a stored tensor was between. */
  roundHalf: { arity: 1, wgsl: (a) => `round_half(${a})`, reference: roundHalf },
  minimum: extreme('min'),
  maximum: extreme('max'),
  clamp: {
    arity: 3,
    wgsl: (a, low, high) => `select(min(max(${a}, ${low}), ${high}), ${a}, is_nan(${a}))`,
    reference: (a, low, high) => Math.min(Math.max(a, low), high),
  },
  clampMin: {
    arity: 2,
    wgsl: (a, low) => `select(max(${a}, ${low}), ${a}, is_nan(${a}))`,
    reference: (a, low) => Math.max(a, low),
  },
  clampMax: {
    arity: 2,
    wgsl: (a, high) => `select(min(${a}, ${high}), ${a}, is_nan(${a}))`,
    reference: (a, high) => Math.min(a, high),
  },
  /** a / b, and 0 where b is 0: the gradient of a norm at the origin. */
  divOrZero: {
    arity: 2,
    wgsl: (a, b) => `select(${a} / ${b}, 0.0, ${b} == 0.0)`,
    reference: (a, b) => (b === 0 ? 0 : a / b),
  },
  /** a where the condition is not 0, as NaN is not, else b. */
  where: {
    arity: 3,
    wgsl: (condition, a, b) => `select(${a}, ${b}, ${condition} == 0.0)`,
    reference: (condition, a, b) => (condition !== 0 ? a : b),
  },
})

/**
 * 1 where it holds, else 0; with a NaN on either side only `ne` holds.
 *
 * Compilers know what a number compared with itself gives, and WGSL's `!=` does not hold for NaN.
 */
const comparison = (
  operator: string,
  holds: (a: number, b: number) => boolean,
): ScalarFunction => ({
  arity: 2,
  wgsl(a, b) {
    const isNot = operator === '!='
    if (a === b && !isNot && !holds(0, 0)) return '0.0'
    const isTrue = a === b ? `!is_nan(${a})` : `${a} ${isNot ? '==' : operator} ${b}`
    return isNot ? `select(1.0, 0.0, ${isTrue})` : `select(0.0, 1.0, ${isTrue})`
  },
  reference: (a, b) => (holds(a, b) ? 1 : 0),
})

export const comparisons = scalarTable({
  eq: comparison('==', (a, b) => a === b),
  ne: comparison('!=', (a, b) => a !== b),
  lt: comparison('<', (a, b) => a < b),
  le: comparison('<=', (a, b) => a <= b),
  gt: comparison('>', (a, b) => a > b),
  ge: comparison('>=', (a, b) => a >= b),
})
