import { f32Literal } from '../shader.ts'

/** The norms that gradients are clipped by: what an element adds, how terms join, and what the total then is; NaN stays NaN. */
export type NormKind = 'l2' | 'l1' | 'largest' | 'smallest' | 'count' | PowerNorm

/** (sum of |x|^p)^(1/p): `p3`, `p0.5`. */
export type PowerNorm = `p${number}`

interface Norm {
  term(x: number): number
  join(a: number, b: number): number
  finish(total: number): number
  /** WGSL of the same, on names of f32. */
  readonly wgsl: {
    term(x: string): string
    join(a: string, b: string): string
    finish(x: string): string
  }
}

const sumWgsl = (a: string, b: string) => `${a} + ${b}`
// A sum keeps NaN; WGSL's max need not.
const maxWgsl = (a: string, b: string) =>
  `select(max(${a}, ${b}), ${a} + ${b}, is_nan(${a}) || is_nan(${b}))`
const same = (x: string) => x
const absWgsl = (x: string) => `abs(${x})`

const norms: Readonly<Record<Exclude<NormKind, PowerNorm>, Norm>> = {
  l2: {
    term: (x) => x * x,
    join: (a, b) => a + b,
    finish: Math.sqrt,
    wgsl: { term: (x) => `${x} * ${x}`, join: sumWgsl, finish: (x) => `sqrt(${x})` },
  },
  l1: {
    term: Math.abs,
    join: (a, b) => a + b,
    finish: (x) => x,
    wgsl: { term: absWgsl, join: sumWgsl, finish: same },
  },
  largest: {
    term: Math.abs,
    join: Math.max,
    finish: (x) => x,
    wgsl: { term: absWgsl, join: maxWgsl, finish: same },
  },
  // Totals begin at 0, so that of the smallest is kept as a number that falls as it rises, by its bits: no rounding.
  smallest: {
    term: (x) => fallingOf(Math.abs(x)),
    join: Math.max,
    finish: risingOf,
    wgsl: {
      term: (x) =>
        `select(bitcast<f32>(0x7f7fffffu - min(bitcast<u32>(abs(${x})), 0x7f7fffffu)), ${x}, is_nan(${x}))`,
      join: maxWgsl,
      finish: (x) =>
        `select(bitcast<f32>(select(0x7f7fffffu - bitcast<u32>(${x}), 0x7f800000u, ${x} == 0.0)), ${x}, is_nan(${x}))`,
    },
  },
  // As in PyTorch a NaN is an element that is not 0.
  count: {
    term: (x) => (x === 0 ? 0 : 1),
    join: (a, b) => a + b,
    finish: (x) => x,
    wgsl: {
      term: (x) => `select(0.0, 1.0, (bitcast<u32>(${x}) & 0x7fffffffu) != 0u)`,
      join: sumWgsl,
      finish: same,
    },
  },
}

/** Bits of the largest finite f32. */
const largestBits = 0x7f7fffff

const bitsOf = (x: number): number => new Uint32Array(Float32Array.of(x).buffer)[0]
const fromBits = (bits: number): number => new Float32Array(Uint32Array.of(bits).buffer)[0]

const fallingOf = (x: number): number =>
  Number.isNaN(x) ? x : fromBits(largestBits - Math.min(bitsOf(x), largestBits))

/** The inverse of `fallingOf`; infinite where all were, or there was none. */
function risingOf(x: number): number {
  if (Number.isNaN(x)) return x
  return x === 0 ? Number.POSITIVE_INFINITY : fromBits(largestBits - bitsOf(x))
}

/** x^p for x of 0 or more; what `pow` need not do well, 0, infinity and NaN, stays as it is. */
const powerWgsl = (p: number) => (x: string) =>
  `select(pow(abs(${x}), ${f32Literal(p)}), abs(${x}), ${x} == 0.0 || (bitcast<u32>(${x}) & 0x7f800000u) == 0x7f800000u)`

export function normOf(kind: NormKind): Norm {
  if (Object.hasOwn(norms, kind)) return norms[kind as keyof typeof norms]
  const p = Number(kind.slice(1))
  return {
    term: (x) => Math.abs(x) ** p,
    join: (a, b) => a + b,
    finish: (x) => x ** (1 / p),
    wgsl: { term: powerWgsl(p), join: sumWgsl, finish: powerWgsl(1 / p) },
  }
}
