import type { Shape } from '../../util/shape.ts'
import { reads, type ShaderBinding, writes } from '../shader.ts'
import { broadcastIndex, type Step, stepsToWgsl } from '../steps.ts'

// What all matmul kernels share: the problem, reading a side into registers, multiplying, the sums of rows, the store.
//
// All sizes are baked. Accumulators and operands are named scalar registers: an array indexed by a loop variable goes to
// memory on several drivers, and SwiftShader writes every assignment to a variable back under a mask, so each accumulator
// is assigned once per 4 steps of k. Indices of edge tiles are clamped before the loop, so loops have constant bounds, no
// guards, and read nothing outside their operands. Each element is summed in order of k, whatever the variant
// (split-K: in order within a slice, then slice by slice).

/** c[M, N] = a b for `nn` (a[M,K] b[K,N]), `nt` (a[M,K] b[N,K]) or `tn` (a[K,M] b[K,N]). */
export type MatmulForm = 'nn' | 'nt' | 'tn'

export interface MatmulProblem {
  readonly form: MatmulForm
  readonly m: number
  readonly k: number
  readonly n: number
  /** Chain at the store: input 0 is the accumulator, 1.. the operands, which broadcast to [M, N]. */
  readonly epilogue: readonly Step[]
  readonly operandShapes: readonly Shape[]
  /** Whether a second output [M] takes the sums of a over k. */
  readonly rowSums: boolean
}

/** Text that names a kernel in labels and shader headers: `nt 64x784x256 bias-relu sums`. */
export const describeProblem = ({ form, m, k, n, epilogue, rowSums }: MatmulProblem): string =>
  [`${form} ${m}x${k}x${n}`, epilogue.map(({ fn }) => fn).join('-'), rowSums ? 'sums' : '']
    .filter(Boolean)
    .join(' ')

export const range = (count: number): number[] => Array.from({ length: count }, (_, i) => i)

export const indent = (lines: readonly string[], by = '  '): string[] =>
  lines.map((line) => by + line)

/** One operand as a tile reads it: `count` of its rows (a) or columns (b), each along k. */
export interface Side {
  readonly name: 'a' | 'b'
  readonly count: number
  /** M for a, N for b. */
  readonly size: number
  readonly k: number
  /** Whether neighbours in memory are neighbours in k. */
  readonly isAlongK: boolean
  /** Whether 4 neighbours in memory are loaded at once. */
  readonly isWide: boolean
}

export function sideOf(problem: MatmulProblem, name: 'a' | 'b', count: number): Side {
  const { form, k } = problem
  const size = name === 'a' ? problem.m : problem.n
  const isAlongK = name === 'a' ? form !== 'tn' : form === 'nt'
  const isWide = isAlongK ? k % 4 === 0 : size % 4 === 0 && count % 4 === 0
  return { name, count, size, k, isAlongK, isWide }
}

const lanes = ['x', 'y', 'z', 'w']

/** `let a_at0 = ...`: where each row of the side begins, inside the operand also for edge tiles. */
export function sideStarts({ name, count, size, k, isAlongK, isWide }: Side): string[] {
  const first = name === 'a' ? 'row' : 'col'
  const clamp = (index: string, last: number) =>
    size % count === 0 ? index : `min(${index}, ${last}u)`
  if (!isAlongK && isWide) {
    return range(count / 4).map(
      (g) => `let ${name}_at${g} = ${clamp(`${first} / 4u + ${g}u`, size / 4 - 1)};`,
    )
  }
  return range(count).map((i) => {
    const index = clamp(`${first} + ${i}u`, size - 1)
    return `let ${name}_at${i} = ${isAlongK ? `(${index}) * ${isWide ? k / 4 : k}u` : index};`
  })
}

/** Loads of the side for `steps` steps from `k`, a WGSL expression. */
export function sideLoads(side: Side, steps: number, k: string): string[] {
  const { name, count, size, isAlongK, isWide } = side
  if (isAlongK) {
    const [stride, index] = isWide ? [4, `(${k}) / 4u`] : [1, k]
    return range(steps / stride).flatMap((j) =>
      range(count).map(
        (i) => `let ${name}${i}_${j * stride} = ${name}[${name}_at${i} + ${index} + ${j}u];`,
      ),
    )
  }
  const per = isWide ? 4 : 1
  return range(steps).flatMap((j) =>
    range(count / per).map(
      (g) => `let ${name}${g}_${j} = ${name}[(${k} + ${j}u) * ${size / per}u + ${name}_at${g}];`,
    ),
  )
}

/** The register that holds row `i` of the side at step `j` of a round. */
export function sideElement({ name, isAlongK, isWide }: Side, i: number, j: number): string {
  if (!isWide) return `${name}${i}_${j}`
  return isAlongK
    ? `${name}${i}_${j - (j % 4)}.${lanes[j % 4]}`
    : `${name}${Math.floor(i / 4)}_${j}.${lanes[i % 4]}`
}

/** `acc += a b` for a whole tile over `steps` steps, one assignment for each accumulator. */
export const multiply = (
  rows: number,
  cols: number,
  steps: number,
  a: (row: number, step: number) => string,
  b: (col: number, step: number) => string,
): string[] =>
  range(rows).flatMap((r) =>
    range(cols).map((c) => {
      const products = range(steps).map((j) => ` + ${a(r, j)} * ${b(c, j)}`)
      return `acc${r}_${c} = acc${r}_${c}${products.join('')};`
    }),
  )

export const accumulators = (rows: number, cols: number): string[] =>
  range(rows).flatMap((r) => range(cols).map((c) => `var acc${r}_${c} = 0.0;`))

/** Where finished tiles go: the call's outputs through the epilogue, or a slice of partial sums. */
export interface StoreTarget {
  readonly epilogue: readonly Step[]
  readonly operandShapes: readonly Shape[]
  /** Added to every index of c (in elements), and of the row sums. */
  readonly offset?: { readonly c: string; readonly sums: string }
}

/** Whether a tile's columns are stored 4 at a time. */
export const isStoreWide = (n: number, cols: number): boolean => n % 4 === 0 && cols % 4 === 0

/** Stores of a tile at (row, col); nothing is stored outside of c. */
export function storeTile(
  { m, n }: MatmulProblem,
  target: StoreTarget,
  rows: number,
  cols: number,
): string[] {
  const finish = (accumulator: string, row: string, col: string, prefix: string) =>
    stepsToWgsl(
      target.epilogue,
      [
        accumulator,
        ...target.operandShapes.map(
          (shape, i) => `e${i}[${broadcastIndex([m, n], shape, [row, col])}]`,
        ),
      ],
      prefix,
    )
  const guarded = (condition: string | undefined, lines: readonly string[]) => [
    condition ? `if (${condition}) {` : '{',
    ...indent(lines),
    '}',
  ]
  const per = isStoreWide(n, cols) ? 4 : 1
  const offset = target.offset ? `${target.offset.c}${per === 4 ? ' / 4u' : ''} + ` : ''
  return range(rows).flatMap((r) => {
    const row = `(row + ${r}u)`
    const columns = range(cols / per).flatMap((g) => {
      const parts = range(per).map((lane) =>
        finish(`acc${r}_${g * per + lane}`, row, `(col + ${g * per + lane}u)`, `s${lane}_`),
      )
      const results = parts.map(({ result }) => result)
      const store =
        per === 4
          ? `c[${offset}${row} * ${n / 4}u + col / 4u + ${g}u] = vec4<f32>(${results.join(', ')});`
          : `c[${offset}${row} * ${n}u + col + ${g}u] = ${results[0]};`
      return guarded(n % cols === 0 ? undefined : `col + ${g * per}u < ${n}u`, [
        ...parts.flatMap(({ lines }) => lines),
        store,
      ])
    })
    return guarded(m % rows === 0 ? undefined : `row + ${r}u < ${m}u`, columns)
  })
}

/** Sums of a over k for the rows of a tile (form tn), in order of k; by the invocations that own column 0. */
export function storeRowSums(
  { m }: MatmulProblem,
  side: Side,
  target: StoreTarget,
  k: { readonly first: string; readonly end: string },
): string[] {
  const { count } = side
  return [
    'if (col == 0u) {',
    ...indent([
      ...range(count).map((i) => `var sum${i} = 0.0;`),
      `for (var k = ${k.first}; k < ${k.end}; k++) {`,
      ...indent([
        ...sideLoads(side, 1, 'k'),
        ...range(count).map((i) => `sum${i} += ${sideElement(side, i, 0)};`),
      ]),
      '}',
      ...range(count).map((i) => {
        const guard = m % count === 0 ? '' : `if (row + ${i}u < ${m}u) `
        return `${guard}{ row_sums[${target.offset ? `${target.offset.sums} + ` : ''}row + ${i}u] = sum${i}; }`
      }),
    ]),
    '}',
  ]
}

/** Bindings of a kernel that makes the call's outputs. */
export function outputBindings(problem: MatmulProblem, isWide: boolean): ShaderBinding[] {
  return [
    ...problem.operandShapes.map((_, i) => reads(`e${i}`, { in: 2 + i })),
    writes('c', { out: 0 }, isWide ? 'vec4<f32>' : 'f32'),
    ...(problem.rowSums ? [writes('row_sums', { out: 1 })] : []),
  ]
}

export const readSide = ({ name, isWide }: Pick<Side, 'name' | 'isWide'>): ShaderBinding =>
  reads(name, { in: name === 'a' ? 0 : 1 }, isWide ? 'vec4<f32>' : 'f32')
