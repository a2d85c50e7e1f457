import { invariant, ShapeError } from '../../util/errors.ts'
import {
  countElements,
  formatShape,
  type Shape,
  sameShape,
  stridesOf,
  type TensorType,
  tensorType,
} from '../../util/shape.ts'
import { roundHalf } from '../half.ts'
import { converted } from '../map/map.ts'
import {
  defineOp,
  type GradientContext,
  type KernelLimits,
  type Op,
  type OpCall,
  type Value,
  type Variant,
} from '../op.ts'
import { reshape } from '../reshape/reshape.ts'
import { applySteps, broadcastOffset, chainShape, type Step } from '../steps.ts'
import type { Strided } from '../strided.ts'
import { sumTo } from '../sum/sum.ts'
import { directGrid, directKernel, type RegisterTile } from './direct.ts'
import { naiveKernel } from './naive.ts'
import {
  batchCount,
  type MatmulAttrs,
  type MatmulForm,
  type MatmulProblem,
  operandsOf,
  problemOf,
  sizesOf,
  stridesInOrder,
} from './problem.ts'
import { hasShuffles, type SubgroupTile, subgroupKernel } from './subgroup.ts'
import { invocationsOf, tiledKernel, type WorkgroupTile, workgroupBytesOf } from './tiled.ts'

export type { MatmulAttrs, MatmulForm }

/** A product and nothing else. */
export const plain = (form: MatmulForm): MatmulAttrs => ({ form, epilogue: [], rowSums: false })

const isEmpty = (problem: MatmulProblem) =>
  batchCount(problem) * problem.m * problem.k * problem.n === 0

/** Whether a tile is worth trying: nothing is empty, at least half of the first tile is c, and of all that wide tiles cover. */
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

/** A register tile per invocation, straight from storage; tiles of one row for few rows alone. */
const direct = (tile: RegisterTile): Variant<MatmulAttrs> => ({
  name: `direct-${tile.rows}x${tile.cols}`,
  when(call, { maxGroupsPerDimension }) {
    const problem = problemOf(call)
    return (
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

const variants: [Variant<MatmulAttrs>, ...Variant<MatmulAttrs>[]] = [
  { name: 'naive', lower: (call) => naiveKernel(problemOf(call)) },
  direct({ rows: 4, cols: 4 }),
  direct({ rows: 8, cols: 4 }),
  direct({ rows: 4, cols: 8 }),
  direct({ rows: 8, cols: 8 }),
  direct({ rows: 16, cols: 8 }),
  direct({ rows: 16, cols: 16 }),
  direct({ rows: 1, cols: 8 }),
  tiled({ m: 32, n: 32, k: 8, rows: 4, cols: 4 }),
  tiled({ m: 64, n: 64, k: 8, rows: 4, cols: 4 }),
  subgroup({ rows: 8, cols: 4, threads: 64 }),
  subgroup({ rows: 4, cols: 4, threads: 32 }),
  splitK(4, { rows: 4, cols: 4 }),
  splitK(16, { rows: 4, cols: 4 }),
]

/**
 * The fixed table: by the size of c and the work.
 *
 * On SwiftShader a load costs as much as 20 multiplications, so the largest tile runs fastest, but it takes 1.3 to 2 s to
 * compile (guards at edges double that) against 0.1 s of the 8x8 one (0.2 s with edges) and some 0.05 s of the 4x4 one, which
 * only large products earn back: below 10 MFLOP the 8x8 tile saves less than a millisecond a run.
 * 256 accumulators would spill on a GPU, which gets the first half of the table. Numbers: bench/kernels.
 */
export function preferred(call: OpCall<MatmulAttrs>, limits: KernelLimits): string {
  const problem = problemOf(call)
  const { m, k, n } = problem
  if (isEmpty(problem)) return 'naive'
  const products = batchCount(problem)
  const flops = 2 * products * m * k * n
  const tiles = (rows: number, cols: number) => products * Math.ceil(m / rows) * Math.ceil(n / cols)
  const choose = (): string => {
    if (limits.isSoftware === false) {
      if (tiles(8, 8) >= 4096 && m >= 64 && n >= 64) return 'direct-8x8'
      if (tiles(4, 4) < 1024 && k >= 1024) return 'split-16-4x4'
      return 'direct-4x4'
    }
    // Few rows (one sample, one token): a square tile would compute most of its rows in vain.
    if (m <= 2 && n >= 8) return 'direct-1x8'
    if (flops >= 1e8 && tiles(16, 16) >= 16) return 'direct-16x16'
    const wastesLittle = coveredBy(m, n, 8, 8) <= 1.25 * m * n
    return flops >= 1e7 && tiles(8, 8) >= 8 && wastesLittle ? 'direct-8x8' : 'direct-4x4'
  }
  const canRun = (name: string) =>
    variants.find((variant) => variant.name === name)?.when?.(call, limits) ?? true
  const name = choose()
  if (canRun(name)) return name
  // Many small products: the tile that suits their sum may be larger than one of them.
  return problem.batch.length > 0 && canRun('direct-4x4') ? 'direct-4x4' : 'naive'
}

const testCase = (
  name: string,
  form: MatmulForm,
  [m, k, n]: readonly [number, number, number],
  more: {
    operands?: Shape[]
    epilogue?: Step[]
    rowSums?: boolean
    colSums?: boolean
    half?: boolean
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
    attrs: {
      form,
      epilogue: more.epilogue ?? [],
      rowSums: more.rowSums ?? false,
      ...(more.colSums && { colSums: true }),
      ...(more.half && { half: true }),
    },
    fill: more.fill,
  }
}

/** A product of f16 operands; those of the chain are f16 too where they are no vectors. */
const halfCase = (...args: Parameters<typeof testCase>) => {
  const single = testCase(...args)
  const inputs = single.inputs.map(({ shape }) =>
    tensorType(shape, shape.length === 2 ? 'f16' : 'f32'),
  )
  return { ...single, name: `f16 ${single.name}`, inputs }
}

/** The same product for each batch. */
const batchCase = (
  name: string,
  form: MatmulForm,
  sizes: readonly [number, number, number],
  batchA: Shape,
  batchB: Shape,
  more: Parameters<typeof testCase>[3] = {},
) => {
  const single = testCase(name, form, sizes, more)
  const [a, b, ...operands] = single.inputs
  return {
    ...single,
    name: `[${batchA}] ${form} [${batchB}] ${sizes.join('x')} ${name}`.trim(),
    inputs: [tensorType([...batchA, ...a.shape]), tensorType([...batchB, ...b.shape]), ...operands],
  }
}

const addBias: Step[] = [{ fn: 'add', args: [{ input: 0 }, { input: 1 }] }]
const addBiasRelu: Step[] = [...addBias, { fn: 'relu', args: [{ step: 0 }] }]

const addTwo: Step[] = [
  { fn: 'add', args: [{ input: 0 }, { input: 1 }] },
  { fn: 'add', args: [{ step: 0 }, { input: 2 }] },
]

const addThree: Step[] = [...addTwo, { fn: 'add', args: [{ step: 1 }, { input: 3 }] }]

/**
 * The gradients of c = a b. One product each, with the other operand's form turned.
 *
 * An operand that was broadcast gets the sum over its batches; where b has no batch axes that sum is part of the product,
 * whose rows are then those of all batches.
 */
function gradient(context: GradientContext<MatmulAttrs>): (Value | undefined)[] {
  const { inputs, outputGradients, attrs } = context
  const [a, b] = inputs
  const [given] = outputGradients
  const { form } = attrs
  if (
    attrs.epilogue.length > 0 ||
    attrs.rowSums ||
    attrs.colSums ||
    attrs.a ||
    attrs.b ||
    attrs.store ||
    attrs.half
  ) {
    throw new Error('internal: matmul: gradients are taken before anything is linked in')
  }
  if (!given) return [undefined, undefined]
  // Products of f16 operands have f16 operands in backward too.
  const dy = converted(context, given, a.type.dtype === 'f16' ? 'f16' : 'f32')
  const product = (of: MatmulForm, left: Value, right: Value) =>
    context.emit(matmul, [left, right], plain(of))[0]
  const rows = (value: Value): Value => {
    const { shape } = value.type
    const flat = [countElements(shape.slice(0, -1)), shape[shape.length - 1]]
    return sameShape(flat, shape) ? value : context.emit(reshape, [value], { shape: flat })[0]
  }
  // c has the rows of a, unless b brings batch axes of its own.
  const isShared = b.type.shape.length === 2 && form !== 'tn'
  const byA: Record<MatmulForm, () => Value> = {
    nn: () => product('nt', dy, b),
    nt: () => product('nn', dy, b),
    tn: () => product('nt', b, dy),
  }
  const byB: Record<MatmulForm, () => Value> = {
    nn: () => (isShared ? product('tn', rows(a), rows(dy)) : product('tn', a, dy)),
    nt: () => (isShared ? product('tn', rows(dy), rows(a)) : product('tn', dy, a)),
    tn: () => product('nn', a, dy),
  }
  return [byA[form], byB[form]].map((rule, n) =>
    context.needs(n) ? sumTo(context, rule(), inputs[n].type.shape) : undefined,
  )
}

/** c = a b in one of three forms over broadcast batch axes, then a chain at the store. */
export const matmul: Op<MatmulAttrs> = defineOp<MatmulAttrs>({
  name: 'matmul',
  takesEpilogue: true,
  takesHalf: true,
  infer(inputs, attrs) {
    const { form, rowSums, colSums = false, store, half } = attrs
    const hasSums = rowSums || colSums
    const isFloat = ({ dtype }: TensorType) => dtype === 'f32' || dtype === 'f16'
    const other =
      inputs.find((input) => !isFloat(input)) ??
      (inputs[1].dtype === inputs[0].dtype ? undefined : inputs[1])
    if (other || (hasSums && form !== 'tn') || (rowSums && colSums)) {
      throw new ShapeError(
        'shape.unsupported',
        `matmul: expected two operands of f32 or f16, and sums of one operand in form tn alone, got ${other?.dtype ?? 'f32'} in form ${form}. Convert the input or leave sums out.`,
      )
    }
    const [a, b] = operandsOf({ inputs, outputs: [], attrs })
    const { m, n, batch } = sizesOf(form, a.shape, b.shape)
    if (hasSums && batch.length > 0) {
      throw new ShapeError(
        'shape.unsupported',
        `matmul: sums need operands of 2 dimensions, got ${formatShape(a.shape)} and ${formatShape(b.shape)}. Leave sums out.`,
      )
    }
    const c = [...batch, m, n]
    const operands = inputs.slice(2).map(({ shape }) => shape)
    const shape = chainShape('matmul epilogue', [c, ...operands])
    if (!sameShape(shape, c)) {
      throw new ShapeError(
        'shape.mismatch',
        `matmul: operands of the epilogue must broadcast to ${formatShape(c)}, got ${formatShape(shape)} with them. Reshape them.`,
      )
    }
    invariant(
      !half || (n % 4 === 0 && !hasSums && !store),
      () => `matmul: c[${c}] cannot be stored as f16`,
    )
    const output = store ? store.map((axis) => c[axis]) : c
    return [
      tensorType(output, half ? 'f16' : 'f32'),
      ...(rowSums ? [tensorType([m])] : colSums ? [tensorType([n])] : []),
    ]
  },
  variants,
  preferred,
  gradient,
  flops: (call) => flopsOf(call),
  reference(values, call) {
    const { form, epilogue, rowSums, colSums, store } = call.attrs
    const [a, b] = operandsOf(call)
    const { m, k, n, batch } = sizesOf(form, a.shape, b.shape)
    const shape = [...batch, m, n]
    const strides = store ? stridesInOrder(shape, store) : stridesOf(shape)
    /** Where the last two axes of an operand begin, for the batch of the element `flat` of c. */
    const startOf = (operand: Strided, flat: number) => {
      let rest = Math.floor(flat / (m * n))
      let at = operand.offset
      for (let axis = batch.length - 1; axis >= 0; axis--) {
        const own = axis - (shape.length - operand.shape.length)
        if (own >= 0 && operand.shape[own] !== 1) at += (rest % batch[axis]) * operand.strides[own]
        rest = Math.floor(rest / batch[axis])
      }
      return at
    }
    // Strides of an operand along its rows or columns of c, and along k.
    const [leadA, nextA] = a.strides.slice(-2)
    const [leadB, nextB] = b.strides.slice(-2)
    const [alongM, alongKA] = form === 'tn' ? [nextA, leadA] : [leadA, nextA]
    const [alongN, alongKB] = form === 'nt' ? [leadB, nextB] : [nextB, leadB]
    const c = new Float64Array(countElements(shape))
    for (let flat = 0; flat < c.length; flat++) {
      const [row, col] = [Math.floor(flat / n) % m, flat % n]
      const startA = startOf(a, flat) + row * alongM
      const startB = startOf(b, flat) + col * alongN
      let total = 0
      for (let step = 0; step < k; step++) {
        total += values[0][startA + step * alongKA] * values[1][startB + step * alongKB]
      }
      let target = 0
      let rest = flat
      for (let axis = shape.length - 1; axis >= 0; axis--) {
        target += (rest % shape[axis]) * strides[axis]
        rest = Math.floor(rest / shape[axis])
      }
      c[target] = applySteps(epilogue, [
        total,
        ...values
          .slice(2)
          .map((data, i) => data[broadcastOffset(shape, call.inputs[2 + i].shape, flat)]),
      ])
    }
    if (call.attrs.half) return [c.map(roundHalf)]
    if (colSums) {
      const sums = new Float64Array(n)
      for (let col = 0; col < n; col++) {
        for (let step = 0; step < k; step++) {
          sums[col] += values[1][b.offset + col * alongN + step * alongKB]
        }
      }
      return [c, sums]
    }
    if (!rowSums) return [c]
    const sums = new Float64Array(m)
    for (let row = 0; row < m; row++) {
      for (let step = 0; step < k; step++) {
        sums[row] += values[0][a.offset + row * alongM + step * alongKA]
      }
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
    testCase('with column sums', 'tn', [64, 37, 30], { colSums: true }),
    testCase('with column sums, long k', 'tn', [8, 515, 65], { colSums: true }),
    testCase('column sums of nothing', 'tn', [5, 0, 6], { colSums: true }),
    // More columns than one workgroup of the widest variants makes, with a rest.
    testCase('wide', 'nn', [7, 21, 300], { operands: [[300]], epilogue: addBias }),
    testCase('wide', 'tn', [7, 22, 300], { rowSums: true }),
    testCase('wide', 'tn', [7, 9, 301], { colSums: true }),
    testCase('wide, rows by fours', 'tn', [8, 22, 300], { rowSums: true }),
    testCase('no rows', 'nt', [0, 4, 6]),
    testCase('no columns', 'tn', [5, 4, 0], { rowSums: true }),
    batchCase('', 'nn', [3, 5, 7], [3], [3]),
    batchCase('', 'nt', [3, 12, 10], [2, 3], [2, 3]),
    batchCase('', 'tn', [8, 6, 12], [4], [4]),
    batchCase('large enough for every tile', 'nn', [33, 12, 34], [2], [2]),
    batchCase('broadcast', 'nn', [3, 4, 12], [2, 1], [1, 3]),
    batchCase('broadcast', 'tn', [3, 4, 12], [3, 1], [2]),
    batchCase('one a for all', 'nt', [3, 5, 9], [], [4]),
    batchCase('one b for all', 'nn', [2, 8, 3], [2, 3], []),
    batchCase('one b for all', 'nt', [2, 8, 3], [2, 3], []),
    batchCase('one b for all', 'tn', [3, 8, 12], [5], []),
    batchCase('long k', 'nt', [3, 300, 8], [2], [2]),
    batchCase('a bias for all, one a batch, one of its own', 'nn', [3, 4, 12], [2, 3], [2, 3], {
      operands: [[12], [3, 1, 1], [3, 1]],
      epilogue: addThree,
    }),
    batchCase('folded, with a bias and one a row', 'nt', [3, 4, 3], [2, 3], [], {
      operands: [[3], [2, 1, 1, 1], [3, 3]],
      epilogue: addThree,
    }),
    batchCase('wide', 'nn', [7, 13, 293], [2], [2]),
    batchCase('huge', 'nn', [5, 9, 6], [3], [3], { fill: 'huge' }),
    halfCase('', 'nn', [3, 5, 7]),
    halfCase('', 'nt', [33, 20, 20]),
    halfCase('', 'tn', [20, 70, 33], { rowSums: true }),
    halfCase('stored as f16', 'nn', [21, 18, 36], {
      operands: [[36], [21, 36]],
      epilogue: addTwo,
      half: true,
    }),
    halfCase('huge', 'nt', [5, 64, 12], { fill: 'huge', half: true }),
    halfCase('wide', 'nt', [7, 20, 300], { half: true }),
    halfCase('wide, rows by fours', 'tn', [8, 10, 300]),
    {
      ...batchCase('of f16 to f16', 'nt', [3, 6, 4], [2, 3], [2, 3], { half: true }),
      inputs: [tensorType([2, 3, 3, 6], 'f16'), tensorType([2, 3, 4, 6], 'f16')],
    },
    batchCase('no batches', 'nn', [5, 9, 6], [0], [0]),
    batchCase('no k', 'tn', [4, 0, 3], [2], [2]),
    {
      name: 'operands and result with axes in another order',
      // q, k as [B, T, H, D]: the scores of each head, stored as [B, T, H, T].
      inputs: [tensorType([2, 3, 3, 4]), tensorType([2, 3, 3, 4])],
      attrs: {
        ...plain('nt'),
        a: { shape: [2, 3, 3, 4], strides: [36, 4, 12, 1], offset: 0 },
        b: { shape: [2, 3, 3, 4], strides: [36, 4, 12, 1], offset: 0 },
        store: [0, 2, 1, 3],
      },
    },
    {
      name: 'an operand that is part of its input',
      inputs: [tensorType([3, 30]), tensorType([30, 12])],
      attrs: {
        ...plain('nn'),
        a: { shape: [3, 9], strides: [30, 1], offset: 11 },
        b: { shape: [9, 12], strides: [24, 1], offset: 4 },
      },
    },
  ],
})

/** Floating-point operations of a call. */
export const flopsOf = (call: OpCall<MatmulAttrs>): number =>
  2 * countElements(call.outputs[0].shape) * problemOf(call).k
