import type { KernelLimits, OpCall, OpKernels, Variant } from '../op.ts'
import { directGrid, directKernel, nameOf, type RegisterTile } from './direct.ts'
import { naiveKernel } from './naive.ts'
import { batchCount, type MatmulAttrs, type MatmulProblem, problemOf } from './problem.ts'
import { hasShuffles, type SubgroupTile, subgroupKernel } from './subgroup.ts'
import { invocationsOf, tiledKernel, type WorkgroupTile, workgroupBytesOf } from './tiled.ts'

const isEmpty = (problem: MatmulProblem) =>
  batchCount(problem) * problem.m * problem.k * problem.n === 0

/** Returns whether a tile is worth trying: nothing is empty, at least half of the first tile is c, and of all that wide tiles cover. */
function fits(problem: MatmulProblem, rows: number, cols: number): boolean {
  const { m, n } = problem
  if (isEmpty(problem) || 2 * m < rows || 2 * n < cols) return false
  return rows * cols <= 16 || coveredBy(m, n, rows, cols) <= 2 * m * n
}

/** Above this many rows, tiles of several rows read less. */
const fewRows = 8

/** Elements that whole tiles over [m, n] have. */
const coveredBy = (m: number, n: number, rows: number, cols: number): number =>
  Math.ceil(m / rows) * rows * Math.ceil(n / cols) * cols

/**
 * A register tile per invocation, straight from storage; tiles of one row for few rows alone. In vectors for WebAssembly alone: a GPU has none,
 * and SwiftShader takes 1.1 to 1.3 times as long with them (bench/kernels).
 */
const direct = (tile: RegisterTile): Variant<MatmulAttrs> => ({
  name: nameOf(tile),
  when(call, { maxGroupsPerDimension, isWasm }) {
    const problem = problemOf(call)
    return (
      (!tile.hasVectors || isWasm === true) &&
      (tile.rows > 1 || problem.m <= fewRows) &&
      fits(problem, tile.rows, tile.cols) &&
      Math.max(...directGrid(problem, tile).groups, batchCount(problem)) <= maxGroupsPerDimension
    )
  },
  lower: (call) => directKernel(problemOf(call), tile),
})

/** Tiles staged in workgroup memory. */
const tiled = (tile: WorkgroupTile): Variant<MatmulAttrs> => ({
  name: `tiled-${tile.m}x${tile.n}`,
  when(call, limits) {
    const problem = problemOf(call)
    return (
      fits(problem, tile.m, tile.n) &&
      invocationsOf(tile) <= limits.maxInvocations &&
      workgroupBytesOf(tile) <= limits.workgroupMemoryBytes &&
      Math.max(problem.m / tile.m, problem.n / tile.n, batchCount(problem)) <=
        limits.maxGroupsPerDimension
    )
  },
  lower: (call) => tiledKernel(problemOf(call), tile),
})

/** A register tile per invocation; lanes of a subgroup load a together. */
const subgroup = (tile: SubgroupTile): Variant<MatmulAttrs> => ({
  name: `subgroup-${tile.rows}x${tile.cols}`,
  when(call, limits) {
    const problem = problemOf(call)
    return (
      hasShuffles(limits, tile) &&
      fits(problem, tile.rows, tile.cols * tile.threads) &&
      Math.max(problem.m / tile.rows, batchCount(problem)) <= limits.maxGroupsPerDimension
    )
  },
  lower: (call) => subgroupKernel(problemOf(call), tile),
})

/** Slices of k side by side, added in order by a second dispatch. */
const splitK = (slices: number, tile: RegisterTile): Variant<MatmulAttrs> => ({
  name: `split-${slices}-${tile.rows}x${tile.cols}`,
  when(call, { maxGroupsPerDimension }) {
    const problem = problemOf(call)
    return (
      fits(problem, tile.rows, tile.cols) &&
      problem.k >= slices * 16 &&
      Math.max(...directGrid(problem, tile).groups, batchCount(problem) * slices) <=
        maxGroupsPerDimension
    )
  },
  lower: (call) => directKernel(problemOf(call), tile, slices),
})

/** For WebAssembly: with more accumulators its 16 registers would not hold a step's elements too. */
const wasmTile: RegisterTile = { rows: 4, cols: 8, hasVectors: true }

const variants: [Variant<MatmulAttrs>, ...Variant<MatmulAttrs>[]] = [
  { name: 'naive', lower: (call) => naiveKernel(problemOf(call)) },
  direct({ rows: 4, cols: 4 }),
  direct({ rows: 8, cols: 4 }),
  direct({ rows: 4, cols: 8 }),
  direct({ rows: 8, cols: 8 }),
  direct({ rows: 16, cols: 8 }),
  direct({ rows: 16, cols: 16 }),
  direct({ rows: 1, cols: 8 }),
  direct(wasmTile),
  tiled({ m: 32, n: 32, k: 8, rows: 4, cols: 4 }),
  tiled({ m: 64, n: 64, k: 8, rows: 4, cols: 4 }),
  tiled({ m: 128, n: 64, k: 8, rows: 8, cols: 4 }),
  tiled({ m: 128, n: 128, k: 8, rows: 8, cols: 8 }),
  subgroup({ rows: 8, cols: 4, threads: 64 }),
  subgroup({ rows: 4, cols: 4, threads: 32 }),
  splitK(4, { rows: 4, cols: 4 }),
  splitK(16, { rows: 4, cols: 4 }),
]

type Tiles = (rows: number, cols: number) => number

/**
 * A GPU's variants, best first: the largest staged tile that leaves most cores a workgroup, and for smaller products slices of k side by
 * side, because one invocation per tile of c would leave most lanes idle.
 *
 * Measured on an H100 (bench/kernels): 16 slices of 64x784x256 take 0.13 of the time of one; 128x128 tiles of 2048 cubed take 0.6 of the
 * 8x8 register tile's. No smaller GPU was at hand.
 */
function gpuVariants({ k }: MatmulProblem, tiles: Tiles): string[] {
  return [
    ...(tiles(128, 128) >= 256 ? ['tiled-128x128'] : []),
    ...(tiles(128, 64) >= 128 ? ['tiled-128x64'] : []),
    ...(tiles(4, 4) <= 4096 && k >= 256 ? ['split-16-4x4'] : []),
    ...(tiles(4, 4) <= 16384 && k >= 64 ? ['split-4-4x4'] : []),
    ...(tiles(32, 32) >= 64 ? ['tiled-32x32'] : []),
    'direct-4x4',
  ]
}

/**
 * The software adapter's variant, by the size of c and the work.
 *
 * On SwiftShader a load costs as much as 20 multiplications, so the largest tile runs fastest, but it takes 1.3 to 2 s to
 * compile (guards at edges double that) against 0.1 s of the 8x8 one (0.2 s with edges), 0.06 s of the 8x4 one and 0.05 s of the 4x4
 * one, which only large products earn back: below 30 MFLOP the 8x8 tile saves one millisecond a run to the 8x4 one, below 20 MFLOP one to
 * three to the 4x4 one. Numbers: bench/kernels.
 */
function softwareVariant({ m, n }: MatmulProblem, tiles: Tiles, flops: number): string {
  // Few rows (one sample, one token): a square tile would compute most of its rows in vain.
  if (m <= 2 && n >= 8) return 'direct-1x8'
  if (flops >= 1e8 && tiles(16, 16) >= 16) return 'direct-16x16'
  const wastesLittle = coveredBy(m, n, 8, 8) <= 1.25 * m * n
  if (flops < 2e7 || tiles(8, 8) < 8 || !wastesLittle) return 'direct-4x4'
  return flops < 3e7 ? 'direct-8x4' : 'direct-8x8'
}

/** The fixed table. */
function preferred(call: OpCall<MatmulAttrs>, limits: KernelLimits): string {
  const problem = problemOf(call)
  const { m, k, n } = problem
  if (isEmpty(problem)) return 'naive'
  const products = batchCount(problem)
  const tiles: Tiles = (rows, cols) => products * Math.ceil(m / rows) * Math.ceil(n / cols)
  const candidates =
    limits.isSoftware === false
      ? gpuVariants(problem, tiles)
      : [
          ...(limits.isWasm
            ? [m <= 2 && n >= 8 ? 'direct-1x8' : nameOf(wasmTile), 'direct-4x4']
            : [softwareVariant(problem, tiles, 2 * products * m * k * n)]),
          // Many small products: the tile that suits their sum may be larger than one of them.
          ...(problem.batch.length > 0 ? ['direct-4x4'] : []),
        ]
  const canRun = (name: string) =>
    variants.find((variant) => variant.name === name)?.when?.(call, limits) ?? true
  return candidates.find(canRun) ?? 'naive'
}

/** The op's kernels without its gradient and reference, which bring other ops: a page measures its device with these alone. */
export const kernels = { name: 'matmul', variants, preferred } satisfies OpKernels<MatmulAttrs>
