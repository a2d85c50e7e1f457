import { ShapeError } from '../../util/errors.ts'
import { countElements, formatShape, type Shape, tensorType, unify } from '../../util/shape.ts'
import { defineOp, type KernelLimits, type Op, type OpCall, type Variant } from '../op.ts'
import { applySteps, broadcastOffset, chainShape, type Step } from '../steps.ts'
import { directGrid, directKernel, type RegisterTile } from './direct.ts'
import type { MatmulForm, MatmulProblem } from './generate.ts'
import { naiveKernel } from './naive.ts'
import { invocationsOf, tiledKernel, type WorkgroupTile, workgroupBytesOf } from './tiled.ts'

export type { MatmulForm }

/**
 * `form`: which operand is read transposed. `epilogue`: a chain at the store; its input 0 is the accumulator, its inputs
 * 1.. are the call's inputs 2.., which broadcast to [M, N]. `rowSums` (tn only): a second output [M], the sums of a over
 * k, which is the bias gradient where the product is a weight gradient.
 */
export interface MatmulAttrs {
  readonly form: MatmulForm
  readonly epilogue: readonly Step[]
  readonly rowSums: boolean
}

/** A product and nothing else. */
export const plain = (form: MatmulForm): MatmulAttrs => ({ form, epilogue: [], rowSums: false })

const patterns: Record<MatmulForm, readonly [a: string, b: string]> = {
  nn: ['M K', 'K N'],
  nt: ['M K', 'N K'],
  tn: ['K M', 'K N'],
}

function sizesOf(form: MatmulForm, a: Shape, b: Shape): { M: number; K: number; N: number } {
  const [patternA, patternB] = patterns[form]
  const { M, K, N } = unify('matmul', [
    ['a', patternA, a],
    ['b', patternB, b],
  ])
  return { M, K, N }
}

/** The sizes and attrs of a call in the form that kernels take. */
export function problemOf({ inputs, attrs }: OpCall<MatmulAttrs>): MatmulProblem {
  const [a, b, ...operands] = inputs.map(({ shape }) => shape)
  const { M, K, N } = sizesOf(attrs.form, a, b)
  return { ...attrs, m: M, k: K, n: N, operandShapes: operands }
}

const isEmpty = ({ m, k, n }: MatmulProblem) => m * k * n === 0

/** Whether a tile is worth trying: nothing is empty, at least half of the first tile is c, and of all that wide tiles cover. */
function fits({ m, k, n }: MatmulProblem, rows: number, cols: number): boolean {
  if (m * k * n === 0 || 2 * m < rows || 2 * n < cols) return false
  return rows * cols <= 16 || coveredBy(m, n, rows, cols) <= 2 * m * n
}

/** Elements that whole tiles over [m, n] have. */
const coveredBy = (m: number, n: number, rows: number, cols: number): number =>
  Math.ceil(m / rows) * rows * Math.ceil(n / cols) * cols

/** A register tile per invocation, straight from storage. */
const direct = (tile: RegisterTile): Variant<MatmulAttrs> => ({
  name: `direct-${tile.rows}x${tile.cols}`,
  when(call, { maxGroupsPerDimension }) {
    const problem = problemOf(call)
    return (
      fits(problem, tile.rows, tile.cols) &&
      Math.max(...directGrid(problem, tile).groups) <= maxGroupsPerDimension
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
      Math.max(problem.m / tile.m, problem.n / tile.n) <= limits.maxGroupsPerDimension
    )
  },
  lower: (call) => tiledKernel(problemOf(call), tile),
})

/** Slices of k side by side, added in order by a second dispatch. */
const splitK = (slices: number, tile: RegisterTile): Variant<MatmulAttrs> => ({
  name: `split-${slices}-${tile.rows}x${tile.cols}`,
  when(call, { maxGroupsPerDimension }) {
    const problem = problemOf(call)
    return (
      fits(problem, tile.rows, tile.cols) &&
      problem.k >= slices * 16 &&
      Math.max(...directGrid(problem, tile).groups) <= maxGroupsPerDimension
    )
  },
  lower: (call) => directKernel(problemOf(call), tile, slices),
})

const variants: [Variant<MatmulAttrs>, ...Variant<MatmulAttrs>[]] = [
  { name: 'naive', lower: (call) => naiveKernel(problemOf(call)) },
  direct({ rows: 4, cols: 4 }),
  direct({ rows: 8, cols: 4 }),
  direct({ rows: 4, cols: 8 }),
  direct({ rows: 8, cols: 8 }),
  direct({ rows: 16, cols: 8 }),
  direct({ rows: 16, cols: 16 }),
  tiled({ m: 32, n: 32, k: 8, rows: 4, cols: 4 }),
  tiled({ m: 64, n: 64, k: 8, rows: 4, cols: 4 }),
  splitK(4, { rows: 4, cols: 4 }),
  splitK(16, { rows: 4, cols: 4 }),
]

/**
 * The fixed table: by the size of c and the work.
 *
 * On SwiftShader a load costs as much as 20 multiplications, so the largest tile runs fastest, but it takes 1.3 to 2 s to
 * compile (guards at edges double that) against 0.3 to 0.6 s of the 8x8 one and 0.1 to 0.2 s of the 4x4 one, which only
 * large products earn back. 256 accumulators would spill on a GPU, which gets the first half of the table. Numbers:
 * bench/kernels.
 */
export function preferred(call: OpCall<MatmulAttrs>, limits: KernelLimits): string {
  const problem = problemOf(call)
  const { m, k, n } = problem
  if (isEmpty(problem)) return 'naive'
  const flops = 2 * m * k * n
  const tiles = (rows: number, cols: number) => Math.ceil(m / rows) * Math.ceil(n / cols)
  const choose = (): string => {
    if (limits.isSoftware === false) {
      if (tiles(8, 8) >= 4096 && m >= 64 && n >= 64) return 'direct-8x8'
      if (tiles(4, 4) < 1024 && k >= 1024) return 'split-16-4x4'
      return 'direct-4x4'
    }
    if (flops >= 1e8 && tiles(16, 16) >= 16) return 'direct-16x16'
    const wastesLittle = coveredBy(m, n, 8, 8) <= 1.25 * m * n
    return flops >= 1e6 && tiles(8, 8) >= 8 && wastesLittle ? 'direct-8x8' : 'direct-4x4'
  }
  const name = choose()
  const variant = variants.find((v) => v.name === name)
  return (variant?.when?.(call, limits) ?? true) ? name : 'naive'
}

const testCase = (
  name: string,
  form: MatmulForm,
  [m, k, n]: readonly [number, number, number],
  more: {
    operands?: Shape[]
    epilogue?: Step[]
    rowSums?: boolean
    fill?: 'normal' | 'huge' | 'ties'
  } = {},
) => {
  const shapes: Record<MatmulForm, [Shape, Shape]> = {
    nn: [
      [m, k],
      [k, n],
    ],
    nt: [
      [m, k],
      [n, k],
    ],
    tn: [
      [k, m],
      [k, n],
    ],
  }
  return {
    name: `${form} ${m}x${k}x${n}${name && ` ${name}`}`,
    inputs: [...shapes[form], ...(more.operands ?? [])].map((shape) => tensorType(shape)),
    attrs: { form, epilogue: more.epilogue ?? [], rowSums: more.rowSums ?? false },
    fill: more.fill,
  }
}

const addBias: Step[] = [{ fn: 'add', args: [{ input: 0 }, { input: 1 }] }]
const addBiasRelu: Step[] = [...addBias, { fn: 'relu', args: [{ step: 0 }] }]

/** c = a b in one of three forms, then a chain at the store. */
export const matmul: Op<MatmulAttrs> = defineOp<MatmulAttrs>({
  name: 'matmul',
  takesEpilogue: true,
  infer(inputs, { form, rowSums }) {
    const [a, b, ...operands] = inputs
    const other = inputs.find(({ dtype }) => dtype !== 'f32')
    if (other || (rowSums && form !== 'tn')) {
      throw new ShapeError(
        'shape.unsupported',
        `matmul: expected f32 inputs, and row sums in form tn alone, got ${other?.dtype ?? 'f32'} in form ${form}. Convert the input or leave row sums out.`,
      )
    }
    const { M, N } = sizesOf(form, a.shape, b.shape)
    const shape = chainShape('matmul epilogue', [
      [M, N],
      ...operands.map((operand) => operand.shape),
    ])
    if (shape.length !== 2 || shape[0] !== M || shape[1] !== N) {
      throw new ShapeError(
        'shape.mismatch',
        `matmul: operands of the epilogue must broadcast to ${formatShape([M, N])}, got ${formatShape(shape)} with them. Reshape them.`,
      )
    }
    return [tensorType([M, N]), ...(rowSums ? [tensorType([M])] : [])]
  },
  variants,
  preferred,
  gradient(context) {
    const { inputs, outputGradients, attrs } = context
    const [a, b] = inputs
    const [dy] = outputGradients
    if (attrs.epilogue.length > 0 || attrs.rowSums) {
      throw new Error('internal: matmul: gradients are taken before epilogues are linked in')
    }
    if (!dy) return [undefined, undefined]
    const product = (form: MatmulForm, left: typeof a, right: typeof a) =>
      context.emit(matmul, [left, right], plain(form))[0]
    const rules: Record<MatmulForm, readonly [() => typeof a, () => typeof a]> = {
      nn: [() => product('nt', dy, b), () => product('tn', a, dy)],
      nt: [() => product('nn', dy, b), () => product('tn', dy, a)],
      tn: [() => product('nt', b, dy), () => product('nn', a, dy)],
    }
    return rules[attrs.form].map((rule, n) => (context.needs(n) ? rule() : undefined))
  },
  reference([a, b, ...operands], call) {
    const { form, m, k, n, epilogue, rowSums, operandShapes } = problemOf(call)
    const c = new Float64Array(m * n)
    const atA = (row: number, step: number) => a[form === 'tn' ? step * m + row : row * k + step]
    for (let row = 0; row < m; row++) {
      for (let col = 0; col < n; col++) {
        let total = 0
        for (let step = 0; step < k; step++) {
          total += atA(row, step) * b[form === 'nt' ? col * k + step : step * n + col]
        }
        const flat = row * n + col
        c[flat] = applySteps(epilogue, [
          total,
          ...operands.map((values, i) => values[broadcastOffset([m, n], operandShapes[i], flat)]),
        ])
      }
    }
    if (!rowSums) return [c]
    const sums = new Float64Array(m)
    for (let row = 0; row < m; row++) {
      for (let step = 0; step < k; step++) sums[row] += atA(row, step)
    }
    return [c, sums]
  },
  tolerance: {
    absolute: 1e-4,
    relative: 2e-6,
    because:
      'K products of standard normals added in f32 for K up to 784; terms cancel, so the error is absolute',
  },
  cases: [
    testCase('one element', 'nn', [1, 1, 1]),
    testCase('', 'nn', [3, 5, 7]),
    testCase('', 'nt', [3, 5, 7]),
    testCase('', 'tn', [3, 5, 7]),
    testCase('', 'nn', [33, 20, 20]),
    testCase('', 'nt', [33, 20, 20]),
    testCase('', 'tn', [20, 20, 33]),
    testCase('', 'nn', [102, 20, 118]),
    testCase('', 'nt', [102, 19, 118]),
    testCase('', 'tn', [102, 20, 118]),
    testCase('whole tiles', 'nn', [64, 64, 128]),
    testCase('long k', 'nt', [4, 1000, 6]),
    testCase('long k', 'tn', [5, 515, 8], { rowSums: true }),
    testCase('the hidden layer', 'nt', [16, 784, 256], {
      operands: [[256]],
      epilogue: addBiasRelu,
    }),
    testCase('the head', 'nt', [64, 256, 10], { operands: [[10]], epilogue: addBias }),
    testCase('with row sums', 'tn', [10, 64, 256], { rowSums: true }),
    testCase('with row sums', 'tn', [37, 9, 21], { rowSums: true }),
    testCase('scaled', 'tn', [12, 8, 20], {
      rowSums: true,
      operands: [[], [12, 1], [12, 20]],
      epilogue: [
        { fn: 'mul', args: [{ input: 0 }, { input: 1 }] },
        { fn: 'add', args: [{ step: 0 }, { input: 2 }] },
        { fn: 'reluGrad', args: [{ step: 1 }, { input: 3 }] },
      ],
    }),
    testCase('huge', 'nn', [17, 40, 9], { fill: 'huge' }),
    testCase('no k', 'nn', [5, 0, 6], { operands: [[6]], epilogue: addBias }),
    testCase('no k', 'tn', [5, 0, 6], { rowSums: true }),
    testCase('no rows', 'nt', [0, 4, 6]),
    testCase('no columns', 'tn', [5, 4, 0], { rowSums: true }),
  ],
})

/** Floating-point operations of a call. */
export const flopsOf = (call: OpCall<MatmulAttrs>): number =>
  2 * countElements(call.outputs[0].shape) * problemOf(call).k
