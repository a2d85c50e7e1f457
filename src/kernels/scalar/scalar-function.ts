import { f32Literal } from '../shader.ts'

/** A function of numbers, as WGSL and as JavaScript. */
export interface ScalarFunction {
  readonly arity: number
  /**
   * The function on f32 operands, each a name or a literal: an expression, or lines `$name = expression` with the
   * result's expression last. `$` becomes a prefix of the step's own, so names never clash. It may call special-functions.ts.
   */
  wgsl(...args: string[]): string | readonly string[]
  /** The same on numbers. */
  reference(...args: number[]): number
}

/** Returns the table, with its names as its type. */
export const scalarTable = <Name extends string>(
  table: Record<Name, ScalarFunction>,
): Record<Name, ScalarFunction> => table

/** An f32 with these bits. `a` is any value known at run time alone: WGSL refuses constants that are not finite. */
const bitsWgsl = (a: string, bits: string): string =>
  `bitcast<f32>((bitcast<u32>(${a}) & 0u) | ${bits})`
const nanWgsl = (a: string): string => bitsWgsl(a, '0x7fc00000u')
const infinityWgsl = (a: string): string => bitsWgsl(a, '0x7f800000u')
const minusInfinityWgsl = (a: string): string => bitsWgsl(a, '0xff800000u')

/** An f32 constant; `known` is any value known at run time alone, from which those that are not finite are made. */
export function constantWgsl(value: number, known: string): string {
  if (Number.isNaN(value)) return nanWgsl(known)
  if (Number.isFinite(value)) return f32Literal(value)
  return value > 0 ? infinityWgsl(known) : minusInfinityWgsl(known)
}

/**
 * Lines that set `$sigma` = 1 / (1 + exp(-a)) and `$rest` = 1 - sigma, both to full relative precision at any `a`.
 *
 * `$lost` is what 1 + t lost by its rounding.
 */
export const sigmoidLines = (a: string): string[] => [
  `$t = exp(-abs(${a}))`,
  '$whole = 1.0 + $t',
  '$quotient = $t / $whole',
  '$small = $t - $t * $quotient',
  '$large = 1.0 - $quotient',
  `$sigma = select($small, $large, ${a} >= 0.0)`,
  `$rest = select($large, $small, ${a} >= 0.0)`,
]

/** log(1 + u) = u - u^2 P(u) on 0..1, by weighted least squares; largest error 0.02 * 2^-24 relative. */
const log1p = [
  0.49999988, 0.3333269, 0.24988578, 0.19897929, 0.16129324, 0.12467096, 0.083073698, 0.041981049,
  0.013631333, 0.002072918,
]

/** Lines that set `$u` = exp(-|a|) and `$less`, so that log(1 + u) = u - less: log(1 + u) itself would lose the digits of a small u. */
export const log1pLines = (a: string): string[] => [
  `$u = exp(-abs(${a}))`,
  `$p = ${log1p.reduceRight((text, value) => (text ? `(${value} - $u * ${text})` : `${value}`), '')}`,
  '$less = $u * $u * $p',
]

/** log(1 + exp(-|a|)), which the lines above make of float32. */
export const log1pExp = (a: number): number => Math.log1p(Math.exp(-Math.abs(a)))

/** Returns log(1 + exp(a)). */
export const softplus = (a: number): number => Math.max(a, 0) + log1pExp(a)

export const sigmoid = (a: number): number =>
  a >= 0 ? 1 / (1 + Math.exp(-a)) : Math.exp(a) / (1 + Math.exp(a))

/** The number that an f32 literal in WGSL stands for; undefined for a name. */
export const literalValue = (text: string): number | undefined =>
  /^-?[\d.]+(?:e[+-]?\d+)?f$/.test(text) ? Number(text.slice(0, -1)) : undefined
