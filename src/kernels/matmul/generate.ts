import type { Shape } from '../../util/shape.ts'
import { reads, type ShaderBinding, writes } from '../shader.ts'
import { broadcastIndex, collapseBroadcast, type Step, stepsToWgsl, wideValue } from '../steps.ts'
import { coordinatesOf, offsetOf } from '../strided.ts'
import { batchCount, type Layout, type MatmulProblem, sumsOf } from './problem.ts'

// What all matmul kernels share: the problem, reading a side into registers, multiplying, the sums of rows, the store.
//
// All sizes are baked. Accumulators and operands are named scalar registers: an array indexed by a loop variable goes to
// memory on several drivers, and SwiftShader writes every assignment to a variable back under a mask, so each accumulator
// is assigned once per 4 steps of k. Indices of edge tiles are clamped before the loop, so loops have constant bounds, no
// guards, and read nothing outside their operands. Each element is summed in order of k, whatever the variant
// (split-K: in order within a slice, then slice by slice).

/** Text that names a kernel in labels and shader headers: `32 of nt 64x784x256 bias-relu sums`. */
export const describeProblem = (problem: MatmulProblem): string => {
  const { form, m, k, n, batch, epilogue, rowSums, colSums, halves } = problem
  return [
    batch.length > 0 ? `${batchCount(problem)} of` : '',
    `${form} ${m}x${k}x${n}`,
    epilogue.map(({ fn }) => fn).join('-'),
    rowSums ? 'sums' : colSums ? 'column sums' : '',
    halves.sides ? 'of f16' : '',
    halves.c ? 'to f16' : '',
  ]
    .filter(Boolean)
    .join(' ')
}

export const range = (count: number): number[] => Array.from({ length: count }, (_, i) => i)

/** WGSL of a sum with a whole number: compilers that run cold take time for each word. */
export const plus = (index: string, count: number): string =>
  count === 0 ? index : `${index} + ${count}u`

export const indent = (lines: readonly string[], by = '  '): string[] =>
  lines.map((line) => by + line)

/** One operand as a tile reads it: `count` of its rows (a) or columns (b), each along k. */
export interface Side {
  readonly name: 'a' | 'b'
  readonly count: number
  /** M for a, N for b. */
  readonly size: number
  /** True if neighbours in memory are neighbours in k. */
  readonly isAlongK: boolean
  /** True if 4 neighbours in memory are loaded at once. */
  readonly isWide: boolean
  readonly isHalf: boolean
  /** True if each element is loaded as a vector of it. */
  readonly isSpread?: boolean
  /** How many elements rows in memory are apart. */
  readonly lead: number
  /** Where the operand of this batch begins, in loads; empty where that is 0. */
  readonly first: string
}

/** Returns whether every row of every batch begins at a multiple of 4 elements. */
const isAligned = ({ lead, offset, strides }: Layout): boolean =>
  [lead, offset, ...strides].every((step) => step % 4 === 0)

export function sideOf(
  problem: MatmulProblem,
  name: 'a' | 'b',
  count: number,
  mayBeWide = true,
): Side {
  const { form, k } = problem
  const size = name === 'a' ? problem.m : problem.n
  const layout = problem.layouts[name]
  const isAlongK = name === 'a' ? form !== 'tn' : form === 'nt'
  const fits = isAlongK ? k % 4 === 0 : size % 4 === 0 && count % 4 === 0
  const isWide = mayBeWide && fits && isAligned(layout)
  const first = startOf(problem, layout)
  return {
    name,
    count,
    size,
    isAlongK,
    isWide,
    isHalf: problem.halves.sides,
    lead: layout.lead,
    first: first === '' ? '' : `${name}_first`,
  }
}

/** WGSL of where a tensor of the batch `batch` begins, in elements, or empty where all begin at 0. */
function startOf({ batch }: MatmulProblem, { offset, strides }: Layout): string {
  const start = offsetOf(coordinatesOf(batch, 'batch'), strides, offset)
  return start === '0u' ? '' : start
}

/** `let a_first = ...` for the sides, and for c where it is stored: where this batch's tensors begin. */
export function batchStarts(
  problem: MatmulProblem,
  sides: readonly Pick<Side, 'name' | 'isWide'>[],
  storesC = true,
): string[] {
  const start = (name: 'a' | 'b' | 'c', isWide: boolean) => {
    const at = startOf(problem, problem.layouts[name])
    return at === '' ? [] : [`let ${name}_first = ${isWide ? `(${at}) / 4u` : at};`]
  }
  return [
    ...sides.flatMap(({ name, isWide }) => start(name, isWide)),
    ...(storesC ? start('c', false) : []),
  ]
}

const lanes = ['x', 'y', 'z', 'w']

/** `let a_at0 = ...`: where each row of the side begins, inside the operand also for edge tiles. */
export function sideStarts({
  name,
  count,
  size,
  isAlongK,
  isWide,
  lead,
  first: begin,
}: Side): string[] {
  const first = name === 'a' ? 'row' : 'col'
  const from = begin === '' ? '' : `${begin} + `
  const clamp = (index: string, last: number) =>
    size % count === 0 ? index : `min(${index}, ${last}u)`
  if (!isAlongK && isWide) {
    return range(count / 4).map(
      (g) => `let ${name}_at${g} = ${from}${clamp(`${first} / 4u + ${g}u`, size / 4 - 1)};`,
    )
  }
  return range(count).map((i) => {
    const index = clamp(`${first} + ${i}u`, size - 1)
    return `let ${name}_at${i} = ${from}${isAlongK ? `(${index}) * ${isWide ? lead / 4 : lead}u` : index};`
  })
}

/** The element of the side at `index`, or 4 neighbours, as f32. */
export const sideLoad = (
  { name, isHalf, isWide, isSpread }: Pick<Side, 'name' | 'isHalf' | 'isWide' | 'isSpread'>,
  index: string,
): string =>
  !isHalf
    ? isSpread
      ? `vec4<f32>(${name}[${index}])`
      : `${name}[${index}]`
    : isWide
      ? `halves_of(${name}[${index}])`
      : `half_of(${name}[(${index}) >> 1u], ${index})`

/** Loads of the side for `steps` steps from `k`, a WGSL expression. */
export function sideLoads(side: Side, steps: number, k: string): string[] {
  const { name, count, isAlongK, isWide, lead } = side
  if (isAlongK) {
    const [stride, index] = isWide ? [4, `(${k}) / 4u`] : [1, k]
    return range(steps / stride).flatMap((j) =>
      range(count).map(
        (i) =>
          `let ${name}${i}_${j * stride} = ${sideLoad(side, plus(`${name}_at${i} + ${index}`, j))};`,
      ),
    )
  }
  const per = isWide ? 4 : 1
  return range(steps).flatMap((j) =>
    range(count / per).map(
      (g) =>
        `let ${name}${g}_${j} = ${sideLoad(side, `(${plus(k, j)}) * ${lead / per}u + ${name}_at${g}`)};`,
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

/** `acc += a b` for rows of a tile from `first` on over `steps` steps, one assignment for each accumulator. */
export const multiply = (
  rows: number,
  cols: number,
  steps: number,
  a: (row: number, step: number) => string,
  b: (col: number, step: number) => string,
  first = 0,
): string[] =>
  range(rows).flatMap((row) =>
    range(cols).map((c) => {
      const r = first + row
      const products = range(steps).map((j) => ` + ${a(r, j)} * ${b(c, j)}`)
      return `acc${r}_${c} = acc${r}_${c}${products.join('')};`
    }),
  )

export const accumulators = (rows: number, cols: number, zero = '0.0'): string[] =>
  range(rows).flatMap((r) => range(cols).map((c) => `var acc${r}_${c} = ${zero};`))

/** Where finished tiles go: the call's outputs through the epilogue, or a slice of partial sums. */
export interface StoreTarget {
  readonly isHalf: boolean
  readonly epilogue: readonly Step[]
  readonly operandShapes: readonly Shape[]
  /** How many elements rows of c are apart. */
  readonly lead: number
  /** Added to every index of c (in elements), and of the row sums; empty for nothing. */
  readonly offset: { readonly c: string; readonly sums: string }
}

/** The call's own outputs. */
export const outputTarget = (problem: MatmulProblem): StoreTarget => ({
  isHalf: problem.halves.c,
  epilogue: problem.epilogue,
  operandShapes: problem.operandShapes,
  lead: problem.layouts.c.lead,
  offset: { c: startOf(problem, problem.layouts.c) === '' ? '' : 'c_first', sums: '' },
})

/** Returns whether a tile's columns are stored 4 at a time. */
export const isStoreWide = ({ n, layouts }: MatmulProblem, cols: number): boolean =>
  n % 4 === 0 && cols % 4 === 0 && isAligned(layouts.c)

/** WGSL index into an epilogue operand at (row, col) of the batch `batch`. */
export function operandIndex(
  { m, n, batch, shape }: MatmulProblem,
  operand: Shape,
  row: string,
  col: string,
): string {
  if (shape.length === 2) return broadcastIndex([m, n], operand, [row, col])
  // Leading axes that the operand indexes as one are one: most need no division.
  const aligned = [...shape.map(() => 1), ...operand].slice(-shape.length)
  const isFolded = batch.length === 0
  const leading = isFolded ? -1 : -2
  const { output, operands } = collapseBroadcast(shape.slice(0, leading), [
    aligned.slice(0, leading),
  ])
  return broadcastIndex(
    [...output, ...shape.slice(leading)],
    [...operands[0], ...aligned.slice(leading)],
    [...coordinatesOf(output, isFolded ? row : 'batch'), ...(isFolded ? [col] : [row, col])],
  )
}

/** Operand `i` of the chain at (row, col), as f32. */
export function operandLoad(problem: MatmulProblem, i: number, row: string, col: string): string {
  const index = operandIndex(problem, problem.operandShapes[i], row, col)
  return problem.halves.operands[i]
    ? `half_of(e${i}[(${index}) >> 1u], ${index})`
    : `e${i}[${index}]`
}

const elementOf = (isHalf: boolean, isWide: boolean): ShaderBinding['element'] =>
  isHalf ? (isWide ? 'vec2<u32>' : 'u32') : isWide ? 'vec4<f32>' : 'f32'

/** Stores of a tile at (row, col); nothing is stored outside of c. */
export function storeTile(
  problem: MatmulProblem,
  target: StoreTarget,
  rows: number,
  cols: number,
): string[] {
  const { m, n } = problem
  const operands = target.operandShapes.map((shape, i) => ({
    at: (row: string, col: string) => operandLoad(problem, i, row, col),
    // The same for all rows (a bias): loaded once for the tile.
    isPerColumn: !operandIndex(problem, shape, 'ROW', 'COL').includes('ROW'),
    register: (column: number) => `e${i}_${column}`,
  }))
  const inside = (column: number) =>
    n % cols === 0 ? `(col + ${column}u)` : `min(col + ${column}u, ${n - 1}u)`
  const shared = operands
    .filter(({ isPerColumn }) => isPerColumn)
    .flatMap(({ at, register }) =>
      range(cols).map((column) => `let ${register(column)} = ${at('0u', inside(column))};`),
    )
  const finish = (sum: string, row: string, column: number, prefix: string) =>
    stepsToWgsl(
      target.epilogue,
      [
        sum,
        ...operands.map(({ at, isPerColumn, register }) =>
          isPerColumn ? register(column) : at(row, `(col + ${column}u)`),
        ),
      ],
      prefix,
    )
  const guarded = (condition: string | undefined, lines: readonly string[]) => [
    condition ? `if (${condition}) {` : '{',
    ...indent(lines),
    '}',
  ]
  const per = isStoreWide(problem, cols) ? 4 : 1
  const offset = target.offset.c ? `${target.offset.c}${per === 4 ? ' / 4u' : ''} + ` : ''
  const stores = range(rows).flatMap((r) => {
    const row = `(row + ${r}u)`
    const columns = range(cols / per).flatMap((g) => {
      const parts = range(per).map((lane) =>
        finish(`acc${r}_${g * per + lane}`, row, g * per + lane, `s${lane}_`),
      )
      const results = parts.map(({ result }) => result)
      const store =
        per === 4
          ? `c[${offset}${row} * ${target.lead / 4}u + col / 4u + ${g}u] = ${wideValue(results, target.isHalf)};`
          : `c[${offset}${row} * ${target.lead}u + col + ${g}u] = ${results[0]};`
      return guarded(n % cols === 0 ? undefined : `col + ${g * per}u < ${n}u`, [
        ...parts.flatMap(({ lines }) => lines),
        store,
      ])
    })
    return guarded(m % rows === 0 ? undefined : `row + ${r}u < ${m}u`, columns)
  })
  return [...shared, ...stores]
}

/** Sums of one operand over k for a tile (form tn), in order of k; by the invocations that own column (or row) 0. */
export function storeSums(
  sums: NonNullable<ReturnType<typeof sumsOf>>,
  side: Side,
  target: StoreTarget,
  k: { readonly first: string; readonly end: string },
): string[] {
  const { count } = side
  return [
    `if (${sums.owner} == 0u) {`,
    ...indent([
      ...range(count).map((i) => `var sum${i} = 0.0;`),
      `for (var k = ${k.first}; k < ${k.end}; k++) {`,
      ...indent([
        ...sideLoads(side, 1, 'k'),
        ...range(count).map((i) => `sum${i} += ${sideElement(side, i, 0)};`),
      ]),
      '}',
      ...range(count).map((i) => {
        const { index, variable } = sums
        const guard = sums.count % count === 0 ? '' : `if (${index} + ${i}u < ${sums.count}u) `
        return `${guard}{ ${variable}[${target.offset.sums ? `${target.offset.sums} + ` : ''}${index} + ${i}u] = sum${i}; }`
      }),
    ]),
    '}',
  ]
}

/** Bindings of a kernel that makes the call's outputs. `isOperandWide`: whether it reads four elements of that operand at once. */
export function outputBindings(
  problem: MatmulProblem,
  isWide: boolean,
  isOperandWide: (operand: number) => boolean = () => false,
): ShaderBinding[] {
  const sums = sumsOf(problem)
  return [
    ...problem.halves.operands.map((isHalf, i) =>
      reads(`e${i}`, { in: 2 + i }, isHalf ? 'u32' : isOperandWide(i) ? 'vec4<f32>' : 'f32'),
    ),
    writes('c', { out: 0 }, elementOf(problem.halves.c, isWide)),
    ...(sums ? [writes(sums.variable, { out: 1 })] : []),
  ]
}

export const readSide = ({
  name,
  isWide,
  isHalf,
}: Pick<Side, 'name' | 'isWide' | 'isHalf'>): ShaderBinding =>
  reads(name, { in: name === 'a' ? 0 : 1 }, elementOf(isHalf, isWide))
