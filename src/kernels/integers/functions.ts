/** A function of i32 numbers, as WGSL and as JavaScript; both wrap around at the ends of the range, as PyTorch's. */
export interface IntegerFunction {
  readonly arity: number
  /** An expression; operands are names or literals of type i32. */
  wgsl(...args: string[]): string
  reference(...args: number[]): number
  /** True if the result is a truth: f32, 1 or 0. */
  readonly isComparison?: true
}

const comparison = (
  operator: string,
  holds: (a: number, b: number) => boolean,
): IntegerFunction => ({
  arity: 2,
  wgsl: (a, b) => `select(0.0, 1.0, ${a} ${operator} ${b})`,
  reference: (a, b) => (holds(a, b) ? 1 : 0),
  isComparison: true,
})

const same = (a: string) => a

/** By the name of the function on floats. What is not here gives f32 of integers, as PyTorch's division and exponentials do. */
export const integerFunctions = {
  add: { arity: 2, wgsl: (a, b) => `${a} + ${b}`, reference: (a, b) => (a + b) | 0 },
  sub: { arity: 2, wgsl: (a, b) => `${a} - ${b}`, reference: (a, b) => (a - b) | 0 },
  mul: { arity: 2, wgsl: (a, b) => `${a} * ${b}`, reference: Math.imul },
  neg: { arity: 1, wgsl: (a) => `-${a}`, reference: (a) => -a | 0 },
  square: { arity: 1, wgsl: (a) => `${a} * ${a}`, reference: (a) => Math.imul(a, a) },
  abs: { arity: 1, wgsl: (a) => `abs(${a})`, reference: (a) => Math.abs(a) | 0 },
  /** The exponent is a number from 0 to `largestExponent`. */
  pow: {
    arity: 2,
    wgsl: (a, exponent) => Array(Number.parseInt(exponent, 10)).fill(a).join(' * ') || '1i',
    reference(a, exponent) {
      let product = 1
      for (let n = 0; n < exponent; n++) product = Math.imul(product, a)
      return product
    },
  },
  sign: { arity: 1, wgsl: (a) => `sign(${a})`, reference: Math.sign },
  floor: { arity: 1, wgsl: same, reference: (a) => a },
  relu: { arity: 1, wgsl: (a) => `max(${a}, 0)`, reference: (a) => Math.max(a, 0) },
  minimum: { arity: 2, wgsl: (a, b) => `min(${a}, ${b})`, reference: Math.min },
  maximum: { arity: 2, wgsl: (a, b) => `max(${a}, ${b})`, reference: Math.max },
  clamp: {
    arity: 3,
    wgsl: (a, low, high) => `min(max(${a}, ${low}), ${high})`,
    reference: (a, low, high) => Math.min(Math.max(a, low), high),
  },
  clampMin: { arity: 2, wgsl: (a, low) => `max(${a}, ${low})`, reference: Math.max },
  clampMax: { arity: 2, wgsl: (a, high) => `min(${a}, ${high})`, reference: Math.min },
  /** a where the condition is not 0, else b; the condition's own comparison is part of how it is read. */
  where: {
    arity: 3,
    wgsl: (condition, a, b) => `select(${b}, ${a}, ${condition} != 0)`,
    reference: (condition, a, b) => (condition !== 0 ? a : b),
  },
  eq: comparison('==', (a, b) => a === b),
  ne: comparison('!=', (a, b) => a !== b),
  lt: comparison('<', (a, b) => a < b),
  le: comparison('<=', (a, b) => a <= b),
  gt: comparison('>', (a, b) => a > b),
  ge: comparison('>=', (a, b) => a >= b),
} satisfies Record<string, IntegerFunction>

export type IntegerFunctionName = keyof typeof integerFunctions

/** Of exponents of i32; a higher power of 2 is 0 in i32. */
const largestExponent = 31

/** Returns whether `pow` is one of integers: of PyTorch's negative exponents it refuses, and of tensors of them, results are f32 here. */
export const isIntegerExponent = (value: unknown): boolean =>
  typeof value === 'number' && value >= 0 && value <= largestExponent

/** Returns whether a number can be an operand beside i32 tensors. */
export const isI32 = (value: number): boolean => Number.isInteger(value) && (value | 0) === value

/** A WGSL literal; the minimum of i32 has no literal. */
export const i32Literal = (value: number): string =>
  value === -0x8000_0000 ? '(-2147483647i - 1i)' : value < 0 ? `(${value}i)` : `${value}i`
