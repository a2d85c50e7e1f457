import { isNaNWgsl } from '../scalar/scalar-function.ts'

/** The norms that gradients are clipped by: what an element adds, how terms join, and what the total then is; NaN stays NaN. */
export type NormKind = 'l2' | 'l1' | 'largest'

interface Norm {
  term(x: number): number
  join(a: number, b: number): number
  finish(total: number): number
  /** WGSL of the same, on f32. */
  readonly wgsl: { term: string; join: string; finish: string }
}

export const norms: Readonly<Record<NormKind, Norm>> = {
  l2: {
    term: (x) => x * x,
    join: (a, b) => a + b,
    finish: Math.sqrt,
    wgsl: { term: 'x * x', join: 'a + b', finish: 'sqrt(x)' },
  },
  l1: {
    term: Math.abs,
    join: (a, b) => a + b,
    finish: (x) => x,
    wgsl: { term: 'abs(x)', join: 'a + b', finish: 'x' },
  },
  largest: {
    term: Math.abs,
    join: Math.max,
    finish: (x) => x,
    // A sum keeps NaN by itself; max need not.
    wgsl: {
      term: 'abs(x)',
      join: `select(max(a, b), a + b, ${isNaNWgsl('a')} || ${isNaNWgsl('b')})`,
      finish: 'x',
    },
  },
}

/** WGSL functions `term`, `join` and `finish` of a norm, those that are named. */
export const normFunctions = (kind: NormKind, names: readonly ('term' | 'join' | 'finish')[]) =>
  names
    .map((name) =>
      name === 'join'
        ? `fn join(a: f32, b: f32) -> f32 {\n  return ${norms[kind].wgsl.join};\n}`
        : `fn ${name}(x: f32) -> f32 {\n  return ${norms[kind].wgsl[name]};\n}`,
    )
    .join('\n')
