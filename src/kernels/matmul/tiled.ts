import type { Lowering } from '../op.ts'
import { ceilDiv, dispatch } from '../shader.ts'
import {
  accumulators,
  batchStarts,
  describeProblem,
  indent,
  isStoreWide,
  multiply,
  outputBindings,
  outputTarget,
  range,
  readSide,
  sideLoad,
  sideOf,
  sideStarts,
  storeSums,
  storeTile,
} from './generate.ts'
import { batchCount, type MatmulProblem, sumsOf } from './problem.ts'

/** A tile of c that one workgroup makes, the steps of k staged at a time, and each invocation's share of the tile. */
export interface WorkgroupTile {
  readonly m: number
  readonly n: number
  readonly k: number
  readonly rows: number
  readonly cols: number
}

export const invocationsOf = ({ m, n, rows, cols }: WorkgroupTile): number =>
  (m / rows) * (n / cols)

/** Workgroup memory: k steps of both tiles. */
export const workgroupBytesOf = ({ m, n, k }: WorkgroupTile): number => (m + n) * k * 4

/**
 * The workgroup stages a tile of both operands in workgroup memory, k-major, and each invocation multiplies its part.
 *
 * source: siboehm's kernel 5 (2D block tiling); tile sizes after llama.cpp and torchlette.
 */
export function tiledKernel(problem: MatmulProblem, tile: WorkgroupTile): Lowering {
  const { m, k, n } = problem
  const sums = sumsOf(problem)
  const { rows, cols } = tile
  const threads = invocationsOf(tile)
  const sides = {
    a: sideOf(problem, 'a', rows, false),
    b: sideOf(problem, 'b', cols, false),
  }
  const staged = {
    a: { ...sides.a, tile: tile.m, first: 'first_row' },
    b: { ...sides.b, tile: tile.n, first: 'first_col' },
  }

  /** Copies `steps` steps of one operand from `at` into workgroup memory; rows past the edge repeat the last one. */
  const stage = (name: 'a' | 'b', steps: number, at: string): string[] => {
    const { size, tile: width, first, isAlongK, lead } = staged[name]
    const from = sides[name].first === '' ? '' : `${sides[name].first} + `
    const total = width * steps
    return range(ceilDiv(total, threads)).map((part) => {
      const e = `(lane + ${part * threads}u)`
      const [step, own] = isAlongK
        ? [`${e} % ${steps}u`, `${e} / ${steps}u`]
        : [`${e} / ${width}u`, `${e} % ${width}u`]
      const index = `min(${first} + ${own}, ${size - 1}u)`
      const source = isAlongK
        ? `${from}${index} * ${lead}u + ${at} + ${step}`
        : `${from}(${at} + ${step}) * ${lead}u + ${index}`
      const copy = `tile_${name}[(${step}) * ${width}u + ${own}] = ${sideLoad(staged[name], source)};`
      return (part + 1) * threads > total ? `if (${e} < ${total}u) { ${copy} }` : copy
    })
  }
  const block = (steps: number, at: string): string[] => [
    ...stage('a', steps, at),
    ...stage('b', steps, at),
    'workgroupBarrier();',
    ...range(ceilDiv(steps, 4)).flatMap((part) => {
      const inner = Math.min(4, steps - part * 4)
      return [
        '{',
        ...indent([
          ...range(inner).flatMap((j) => [
            ...range(rows).map(
              (r) => `let a${r}_${j} = tile_a[${(part * 4 + j) * tile.m}u + own_row + ${r}u];`,
            ),
            ...range(cols).map(
              (c) => `let b${c}_${j} = tile_b[${(part * 4 + j) * tile.n}u + own_col + ${c}u];`,
            ),
          ]),
          ...multiply(
            rows,
            cols,
            inner,
            (r, j) => `a${r}_${j}`,
            (c, j) => `b${c}_${j}`,
          ),
        ]),
        '}',
      ]
    }),
    'workgroupBarrier();',
  ]
  const wholeBlocks = k - (k % tile.k)
  const lines = [
    ...(problem.batch.length > 0 ? ['let batch = group.z;'] : []),
    ...batchStarts(problem, [sides.a, sides.b]),
    ...accumulators(rows, cols),
  ]
  if (wholeBlocks > 0) {
    lines.push(
      `for (var k = 0u; k < ${wholeBlocks}u; k += ${tile.k}u) {`,
      ...indent(block(tile.k, 'k')),
      '}',
    )
  }
  if (wholeBlocks < k) lines.push('{', ...indent(block(k - wholeBlocks, `${wholeBlocks}u`)), '}')
  // A tile's rows need not begin inside c; the store's own guards assume it where sizes divide.
  const isInside = [
    ...(m % tile.m === 0 ? [] : [`row < ${m}u`]),
    ...(n % tile.n === 0 ? [] : [`col < ${n}u`]),
  ].join(' && ')
  // Sums read their operand straight from storage: one column (or row) of invocations, once.
  const target = outputTarget(problem)
  const stores = [
    ...storeTile(problem, target, rows, cols),
    ...(sums
      ? [
          ...sideStarts(sides[sums.of]),
          ...storeSums(sums, sides[sums.of], target, { first: '0u', end: `${k}u` }),
        ]
      : []),
  ]
  lines.push(...(isInside ? [`if (${isInside}) {`, ...indent(stores), '}'] : stores))
  const across = tile.n / cols
  const body = [
    `// c = a b, ${describeProblem(problem)}. One workgroup makes ${tile.m} x ${tile.n} of c, ${tile.k} steps of k at a time; one invocation ${rows} x ${cols}.`,
    '// Edge tiles stage clamped rows and columns and store only what lies in c.',
    `var<workgroup> tile_a: array<f32, ${tile.m * tile.k}>;`,
    `var<workgroup> tile_b: array<f32, ${tile.n * tile.k}>;`,
    '',
    `@compute @workgroup_size(${threads})`,
    'fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {',
    ...indent([
      `let first_row = group.y * ${tile.m}u;`,
      `let first_col = group.x * ${tile.n}u;`,
      `let own_row = (lane / ${across}u) * ${rows}u;`,
      `let own_col = (lane % ${across}u) * ${cols}u;`,
      'let row = first_row + own_row;',
      'let col = first_col + own_col;',
      ...lines,
    ]),
    '}',
    '',
  ].join('\n')
  return {
    dispatches: [
      dispatch({
        label: `matmul ${describeProblem(problem)} tiled-${tile.m}x${tile.n}`,
        bindings: [
          readSide(sides.a),
          readSide(sides.b),
          ...outputBindings(problem, isStoreWide(problem, cols)),
        ],
        body,
        groups: [ceilDiv(n, tile.n), ceilDiv(m, tile.m), batchCount(problem)],
      }),
    ],
  }
}
