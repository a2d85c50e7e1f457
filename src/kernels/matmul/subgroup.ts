import type { KernelLimits, Lowering } from '../op.ts'
import { ceilDiv, dispatch } from '../shader.ts'
import type { RegisterTile } from './direct.ts'
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
  type Side,
  sideElement,
  sideLoad,
  sideLoads,
  sideOf,
  sideStarts,
  storeSums,
  storeTile,
} from './generate.ts'
import { batchCount, type MatmulProblem, sumsOf } from './problem.ts'

/** A register tile, and how many invocations a workgroup has: all along N, so that each of its subgroups shares the rows of a, however they are cut. */
export interface SubgroupTile extends RegisterTile {
  readonly threads: number
}

/** Steps of k a round; subgroup sizes are powers of two, so that rounds divide them. */
const unroll = 4

/** Returns whether shaders may shuffle, a subgroup has the lanes of a round, and none is larger than the workgroup. */
export const hasShuffles = ({ subgroupSizes }: KernelLimits, { threads }: SubgroupTile): boolean =>
  subgroupSizes !== undefined &&
  subgroupSizes.smallest >= unroll &&
  subgroupSizes.largest <= threads

/** This lane's step of a, beginning at `at`: one value for each row, or four rows at once. */
function ownLoads(a: Side, at: string): string[] {
  if (a.isAlongK)
    return range(a.count).map((i) => `let own${i} = ${sideLoad(a, `a_at${i} + ${at}`)};`)
  const per = a.isWide ? 4 : 1
  return range(a.count / per).map(
    (g) => `let own${g} = ${sideLoad(a, `(${at}) * ${a.lead / per}u + a_at${g}`)};`,
  )
}

/** Four steps of a, fetched from the lanes that loaded them. */
function shuffles(a: Side): string[] {
  const registers = !a.isAlongK && a.isWide ? a.count / 4 : a.count
  return range(unroll).flatMap((j) =>
    range(registers).map((i) => `let a${i}_${j} = subgroupShuffle(own${i}, j + ${j}u);`),
  )
}

/**
 * Each invocation makes a register tile; the lanes of a subgroup load one step of a each and hand it round by shuffles.
 *
 * All lanes of a workgroup have the same rows, so a's values are loaded once a subgroup instead of once a lane, without workgroup memory
 * or barriers. Nothing depends on the size of subgroups but the length of a round: sums run in order of k, as in the other variants.
 * The fixed table never takes it: on SwiftShader (4 lanes) it needs about twice the time of the direct tiles; on an H100 (32 lanes) it beats
 * them on small products, but slices of k or staged tiles beat it. The tuner times one of the family wherever it can run.
 * source: onnxruntime's subgroup matmul for Intel (pull request 25854), which keeps a in registers likewise.
 */
export function subgroupKernel(problem: MatmulProblem, tile: SubgroupTile): Lowering {
  const { rows, cols, threads } = tile
  const { m, k, n } = problem
  const sums = sumsOf(problem)
  // Lanes along k load single elements; four rows at once only where they are neighbours.
  const a = sideOf(problem, 'a', rows, problem.form === 'tn')
  const b = sideOf(problem, 'b', cols)
  const wholeRounds = k - (k % unroll)
  const tilesN = ceilDiv(n, cols)
  const product = (steps: number) =>
    multiply(
      rows,
      cols,
      steps,
      (r, j) => sideElement(a, r, j),
      (c, j) => sideElement(b, c, j),
    )
  const lines = [
    ...(problem.batch.length > 0 ? ['let batch = group.z;'] : []),
    ...batchStarts(problem, [a, b]),
    ...sideStarts(a),
    ...sideStarts(b),
    ...accumulators(rows, cols),
  ]
  if (wholeRounds > 0) {
    lines.push(
      `for (var k = 0u; k < ${wholeRounds}u; k += lanes) {`,
      ...indent([
        ...ownLoads(a, `min(k + lane, ${wholeRounds - 1}u)`),
        `let steps = min(lanes, ${wholeRounds}u - k);`,
        `for (var j = 0u; j < steps; j += ${unroll}u) {`,
        ...indent([...shuffles(a), ...sideLoads(b, unroll, '(k + j)'), ...product(unroll)]),
        '}',
      ]),
      '}',
    )
  }
  if (wholeRounds < k) {
    const rest = k - wholeRounds
    const at = `${wholeRounds}u`
    lines.push(
      '{',
      ...indent([...sideLoads(a, rest, at), ...sideLoads(b, rest, at), ...product(rest)]),
      '}',
    )
  }
  const target = outputTarget(problem)
  const stores = [
    ...storeTile(problem, target, rows, cols),
    ...(sums
      ? storeSums(sums, sums.of === 'a' ? a : b, target, { first: '0u', end: `${k}u` })
      : []),
  ]
  lines.push(`if (own_tile < ${tilesN}u) {`, ...indent(stores), '}')
  const body = [
    `// c = a b, ${describeProblem(problem)}. One invocation makes ${rows} rows x ${cols} columns of c; a travels by shuffles.`,
    '// Lanes past the last column repeat it and store nothing.',
    `@compute @workgroup_size(${threads})`,
    'fn main(',
    '  @builtin(workgroup_id) group: vec3<u32>,',
    '  @builtin(local_invocation_index) thread: u32,',
    '  @builtin(subgroup_invocation_id) lane: u32,',
    '  @builtin(subgroup_size) lanes: u32,',
    ') {',
    ...indent([
      `let own_tile = group.x * ${threads}u + thread;`,
      `let row = group.y * ${rows}u;`,
      `let col = min(own_tile, ${tilesN - 1}u) * ${cols}u;`,
      ...lines,
    ]),
    '}',
    '',
  ].join('\n')
  return {
    dispatches: [
      dispatch({
        label: `matmul ${describeProblem(problem)} subgroup-${rows}x${cols}`,
        enables: ['subgroups'],
        bindings: [
          readSide(a),
          readSide(b),
          ...outputBindings(problem, isStoreWide(problem, cols)),
        ],
        body,
        groups: [ceilDiv(tilesN, threads), ceilDiv(m, rows), batchCount(problem)],
      }),
    ],
  }
}
