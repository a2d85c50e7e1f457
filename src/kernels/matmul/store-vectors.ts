import type { Shape } from '../../util/shape.ts'
import { stepsToWgsl, wideValue } from '../steps.ts'
import {
  indent,
  isStoreWide,
  operandIndex,
  operandLoad,
  plus,
  range,
  type StoreTarget,
} from './generate.ts'
import type { MatmulProblem } from './problem.ts'

const lanes = ['x', 'y', 'z', 'w']

/** Returns whether a tile of vectors reads operand `i` of the chain four columns at a time. */
export const isOperandWide = (problem: MatmulProblem, cols: number, i: number): boolean =>
  isStoreWide(problem, cols) &&
  !problem.halves.operands[i] &&
  problem.operandShapes[i].at(-1) === problem.n

const inFours = (shape: Shape): Shape => [...shape.slice(0, -1), shape[shape.length - 1] / 4]

const held = (index: string, isWhole: boolean, last: number): string =>
  isWhole ? `(${index})` : `min(${index}, ${last}u)`

/** How a tile reads the operands of the chain, four columns at a time. */
function operandsOf(problem: MatmulProblem, target: StoreTarget, cols: number) {
  const { n } = problem
  const colAt = (column: number) => held(plus('col', column), n % cols === 0, n - 1)
  const fours = { ...problem, n: n / 4, shape: inFours(problem.shape) }
  return target.operandShapes.map((shape, i) => {
    const at = (row: string, g: number): string => {
      if (isOperandWide(problem, cols, i)) {
        const four = held(plus('col / 4u', g), n % cols === 0, n / 4 - 1)
        return `e${i}[${operandIndex(fours, inFours(shape), row, four)}]`
      }
      const isSame = (shape.at(-1) ?? 1) === 1
      const words = range(isSame ? 1 : 4).map((lane) =>
        operandLoad(problem, i, row, colAt(4 * g + lane)),
      )
      return `vec4<f32>(${words.join(', ')})`
    }
    // The same for all rows (a bias): loaded once for the tile.
    const isPerColumn = !operandIndex(problem, shape, 'ROW', 'COL').includes('ROW')
    return { at, isPerColumn, register: (g: number) => `e${i}_${g}` }
  })
}

/**
 * Stores of a tile at (row, col) whose accumulators are four columns each: the chain is computed once for each of them, which only the
 * compiler to WebAssembly takes (a function of numbers of each word of a vector).
 */
export function storeVectors(
  problem: MatmulProblem,
  target: StoreTarget,
  rows: number,
  cols: number,
): string[] {
  const { m, n } = problem
  const isWide = isStoreWide(problem, cols)
  const rowAt = (r: number) => held(plus('row', r), m % rows === 0, m - 1)
  const operands = operandsOf(problem, target, cols)
  const groups = range(cols / 4)
  const shared = operands
    .filter(({ isPerColumn }) => isPerColumn)
    .flatMap(({ at, register }) => groups.map((g) => `let ${register(g)} = ${at('0u', g)};`))
  const per = isWide ? 4 : 1
  const isApart = !isWide || target.isHalf
  const offset = target.offset.c ? `${target.offset.c}${isWide ? ' / 4u' : ''} + ` : ''
  const begin = `let c_at = ${offset}row * ${target.lead / per}u + col${isWide ? ' / 4u' : ''};`
  const results: string[][] = []
  const chains = range(rows).flatMap((r) =>
    groups.flatMap((g) => {
      const read = operands.map(({ at, isPerColumn, register }) =>
        isPerColumn ? register(g) : at(rowAt(r), g),
      )
      const { lines, result } = stepsToWgsl(
        target.epilogue,
        [`acc${r}_${g}`, ...read],
        `s${r}_${g}_`,
      )
      const own = isApart ? `stored${r}_${g}` : result
      results[r] = [...(results[r] ?? []), own]
      // A chain may give one number for all.
      return isApart ? [...lines, `let ${own}: vec4<f32> = ${result};`] : lines
    }),
  )
  const store = (r: number, column: number): string => {
    const result = results[r][column >> 2]
    const words = lanes.map((lane) => `${result}.${lane}`)
    const value = isWide ? (isApart ? wideValue(words, true) : result) : words[column % 4]
    return `c[${plus('c_at', (r * target.lead + column) / per)}] = ${value};`
  }
  const guarded = (isWhole: boolean, condition: string, stores: readonly string[]) =>
    isWhole ? stores : [`if (${condition}) {`, ...indent(stores), '}']
  return [
    ...shared,
    ...chains,
    begin,
    ...range(cols / per).flatMap((i) => {
      const stores = range(rows).flatMap((r) =>
        guarded(m % rows === 0, `${plus('row', r)} < ${m}u`, [store(r, i * per)]),
      )
      const isWhole = i * per < (n % cols || cols)
      return guarded(isWhole, `${plus('col', i * per)} < ${n}u`, stores)
    }),
  ]
}
