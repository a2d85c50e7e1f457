import { tensorType } from '../../util/shape.ts'
import type { Lowering } from '../op.ts'
import { ceilDiv, dispatch, writes } from '../shader.ts'
import {
  accumulators,
  batchStarts,
  describeProblem,
  indent,
  isStoreWide,
  multiply,
  outputBindings,
  outputTarget,
  plus,
  range,
  readSide,
  type Side,
  type StoreTarget,
  sideElement,
  sideLoads,
  sideOf,
  sideStarts,
  storeSums,
  storeTile,
} from './generate.ts'
import { sumSlicesKernel } from './naive.ts'
import { inPanels, packKernel, panelStarts, readPanels } from './packed.ts'
import { batchCount, type MatmulProblem, sumsOf } from './problem.ts'
import { isOperandWide, storeVectors } from './store-vectors.ts'

/** How many rows and columns of c one invocation makes. */
export interface RegisterTile {
  readonly rows: number
  readonly cols: number
  /** An accumulator is a vector of 4 columns. */
  readonly hasVectors?: boolean
}

/** With vectors: whether a tile reads the side from panels, since it cannot read it as it lies, or enough tiles share it to earn back the copy. */
function isPacked({ m, n, halves }: MatmulProblem, { name, isAlongK, isWide }: Side): boolean {
  if (halves.sides) return true
  return name === 'a' ? !isAlongK && n >= enoughShared : !isWide || isAlongK || m >= enoughShared
}

/** Workgroup shapes: invocations along the lanes' dimension and across it, largest first. */
const workgroupShapes = [
  [8, 8],
  [8, 4],
  [4, 4],
  [4, 2],
  [4, 1],
] as const
/** With vectors: larger ones keep a CPU's threads waiting for the last. */
const vectorShapes = workgroupShapes.slice(2)

export const nameOf = ({ rows, cols, hasVectors }: RegisterTile): string =>
  `${hasVectors ? 'vectors' : 'direct'}-${rows}x${cols}`

/** As many rows or columns of c earn back the copy of the other operand. */
const enoughShared = 64

/** Fewer workgroups than this leave cores idle, so smaller workgroups are taken. */
const enoughWorkgroups = 16

/** Which dimension neighbouring invocations walk along, and the grid that follows from it. */
export function directGrid(problem: MatmulProblem, { rows, cols, hasVectors }: RegisterTile) {
  const { m, n } = problem
  const products = batchCount(problem)
  const tiles = { m: ceilDiv(m, rows), n: ceilDiv(n, cols) }
  // Along N loads of b and stores coalesce; along M only where N is too narrow to fill a subgroup.
  const lanes = tiles.n % 4 === 0 || tiles.n >= tiles.m ? 'n' : 'm'
  const across = lanes === 'n' ? 'm' : 'n'
  const groupsOf = ([along, beside]: readonly [number, number]) =>
    [ceilDiv(tiles[lanes], along), ceilDiv(tiles[across], beside)] as const
  const shapes = hasVectors ? vectorShapes : workgroupShapes
  const size =
    shapes.find((shape) => {
      const [x, y] = groupsOf(shape)
      return x * y * products >= enoughWorkgroups
    }) ?? shapes[shapes.length - 1]
  return { tiles, lanes, across, size, groups: groupsOf(size) }
}

/**
 * Each invocation makes a register tile and reads its operands straight from storage.
 *
 * Workgroups along z are batches. With `slices` above 1, k is cut into slices (z too), whose partial sums a second
 * dispatch adds in order.
 * source: jax-js's tuner (upcast + unroll); named registers after cera's measurements.
 */
export function directKernel(problem: MatmulProblem, tile: RegisterTile, slices = 1): Lowering {
  const { m, k, n } = problem
  const sums = sumsOf(problem)
  const { rows, cols, hasVectors = false } = tile
  const perRegister = hasVectors ? 4 : 1
  const unroll = 4
  const sides = [
    { ...sideOf(problem, 'a', rows, !hasVectors), isSpread: hasVectors },
    sideOf(problem, 'b', cols),
  ]
  const packed = hasVectors ? sides.filter((side) => isPacked(problem, side)) : []
  const [a, b] = sides.map((side) => (packed.includes(side) ? inPanels(side) : side))
  const packs = packed.map((side, i) => packKernel(problem, side, i))
  const isSplit = slices > 1
  const sliceSteps = ceilDiv(k, slices * unroll) * unroll
  const wholeRounds = k - (k % unroll)
  const products = batchCount(problem)
  const isBatched = problem.batch.length > 0
  const target: StoreTarget = isSplit
    ? {
        isHalf: false,
        epilogue: [],
        operandShapes: [],
        lead: n,
        offset: {
          c: isBatched ? `(slice * ${products * m * n}u + batch * ${m * n}u)` : `slice * ${m * n}u`,
          sums: `slice * ${sums?.count}u`,
        },
      }
    : outputTarget(problem)

  const multiplied = (first: number, count: number, steps: number) =>
    multiply(
      count,
      cols / perRegister,
      steps,
      (r, j) => sideElement(a, r, j),
      (c, j) => (hasVectors ? `b${c}_${j}` : sideElement(b, c, j)),
      first,
    )
  const round = (steps: number, at: string) => [
    ...sideLoads(a, steps, at),
    ...sideLoads(b, steps, at),
    ...multiplied(0, rows, steps),
  ]
  const vectorStep = (at: string) => [
    ...sideLoads(b, 1, at),
    ...sideLoads(a, 1, at).flatMap((load, row) => [load, ...multiplied(row, 1, 1)]),
  ]
  const lines: string[] = []
  if (isBatched) lines.push(`let batch = at.z${isSplit ? ` / ${slices}u` : ''};`)
  if (isSplit) {
    lines.push(
      `let slice = at.z${isBatched ? ` % ${slices}u` : ''};`,
      `let k_first = slice * ${sliceSteps}u;`,
      `let k_end = min(k_first + ${sliceSteps}u, ${k}u);`,
      `let k_rounds = min(k_end, ${wholeRounds}u);`,
    )
  }
  lines.push(
    ...batchStarts(
      problem,
      sides.filter((side) => !packed.includes(side)),
      !isSplit,
    ),
    ...[a, b].flatMap((side, i) =>
      packed.includes(sides[i]) ? panelStarts(problem, side) : sideStarts(side),
    ),
    ...accumulators(rows, cols / perRegister, hasVectors ? 'vec4<f32>()' : '0.0'),
  )
  const [first, end] = isSplit
    ? ['k_first', hasVectors ? 'k_end' : 'k_rounds']
    : ['0u', `${hasVectors ? k : wholeRounds}u`]
  const turn = hasVectors
    ? // Engines load all that they need up to the next jump before they compute, and only one step's elements stay in registers.
      range(Math.min(unroll, k)).flatMap((j) => [
        ...(j === 0 ? [] : [`if (k + ${j}u >= ${end}) { break; }`]),
        '{',
        ...indent(vectorStep(plus('k', j))),
        '}',
      ])
    : round(unroll, 'k')
  if (wholeRounds > 0 || hasVectors)
    lines.push(`for (var k = ${first}; k < ${end}; k += ${unroll}u) {`, ...indent(turn), '}')
  if (wholeRounds < k && !hasVectors) {
    const rest = round(k - wholeRounds, `${wholeRounds}u`)
    lines.push(
      isSplit ? `if (k_first <= ${wholeRounds}u && k_end == ${k}u) {` : '{',
      ...indent(rest),
      '}',
    )
  }
  lines.push(...(hasVectors ? storeVectors : storeTile)(problem, target, rows, cols))
  if (sums) {
    lines.push(
      ...storeSums(
        sums,
        { ...(sums.of === 'a' ? a : b), isSpread: false },
        target,
        isSplit ? { first: 'k_first', end: 'k_end' } : { first: '0u', end: `${k}u` },
      ),
    )
  }

  const { tiles, lanes, across, size, groups } = directGrid(problem, tile)
  const isWide = isStoreWide(problem, cols)
  const body = [
    `// c = a b, ${describeProblem(problem)}. One invocation makes ${rows} rows x ${cols} columns of c${isSplit ? ' over one slice of k' : ''}.`,
    '// Edge tiles read clamped rows and columns and store only what lies in c.',
    `@compute @workgroup_size(${size[0]}, ${size[1]})`,
    'fn main(@builtin(global_invocation_id) at: vec3<u32>) {',
    ...indent([
      `let tile_${lanes} = at.x;`,
      `let tile_${across} = at.y;`,
      `if (tile_m >= ${tiles.m}u || tile_n >= ${tiles.n}u) { return; }`,
      `let row = tile_m * ${rows}u;`,
      `let col = tile_n * ${cols}u;`,
      ...lines,
    ]),
    '}',
    '',
  ].join('\n')
  const name = `matmul ${describeProblem(problem)} ${nameOf(tile)}`
  const outputs = isSplit
    ? [
        writes('c', { scratch: 0 }, isWide ? 'vec4<f32>' : 'f32'),
        ...(sums ? [writes(sums.variable, { scratch: 1 })] : []),
      ]
    : outputBindings(problem, isWide, (i) => hasVectors && isOperandWide(problem, cols, i))
  const main = dispatch({
    label: isSplit ? `${name} split ${slices}` : name,
    bindings: [
      ...[a, b].map((side, i) => {
        const index = packed.indexOf(sides[i])
        return index < 0 ? readSide(side) : readPanels(side, index)
      }),
      ...outputs,
    ],
    body,
    groups: [groups[0], groups[1], products * slices],
    // Rows of workgroups make rows of c, where its rows lie one after the other.
    pieces:
      isBatched || lanes === 'm' || target.lead > n
        ? undefined
        : { operand: { out: 0 }, groups: groups[0], elements: size[1] * rows * n },
  })
  if (!isSplit)
    return {
      dispatches: [...packs.map((pack) => pack.dispatch), main],
      scratch: packs.map(({ scratch }) => scratch),
    }
  return {
    dispatches: [main, sumSlicesKernel(problem, slices)],
    scratch: [
      tensorType([slices, products, m, n]),
      ...(sums ? [tensorType([slices, sums.count])] : []),
    ],
  }
}
