import type { Dispatch, KernelLimits, Lowering, Op, OpCall } from './op.ts'
import type { Pass } from './reduce/shapes.ts'
import { ceilDiv, dispatch, linearGroups, type ShaderBinding } from './shader.ts'

// Kernels that load rows, reduce each, and write what they made of it: softmax, losses, norms, sums.

/** How values become one. */
export interface Join {
  /** A WGSL type, and the value of nothing. */
  readonly type: string
  readonly start: string
  /** WGSL of `a` and `b`. */
  readonly by: string
}

export const adding = { type: 'f32', start: '0.0', by: 'a + b' } as const satisfies Join
export const addingPairs = {
  type: 'vec2<f32>',
  start: 'vec2<f32>(0.0, 0.0)',
  by: 'a + b',
} as const satisfies Join
/** The largest number, NaN aside; of nothing the lowest finite one. */
export const largest = {
  type: 'f32',
  start: '-0x1.fffffep+127f',
  by: 'max(a, b)',
} as const satisfies Join

export interface Reduction {
  /** The variable that then holds the result, the same on every lane of the row. */
  readonly name: string
  readonly join: Join
  /** WGSL of what the element adds; `c` is its place in the row, `at` its index, and earlier reductions have their names. */
  readonly of: string
  /** Lines that follow, such as a mean from a sum. */
  readonly after?: readonly string[]
}

/** How a row is spread: its elements lie at `first + c * inner`, and lane l takes c = l, l + lanes, ... */
interface RowShape {
  readonly rows: Pass
  /** Neighbouring threads that share a row; a power of two. */
  readonly lanes: number
}

export interface RowKernel extends RowShape {
  readonly label: string
  readonly bindings: readonly ShaderBinding[]
  readonly constants?: Parameters<typeof dispatch>[0]['constants']
  readonly functions?: string
  /** Lines before the first reduction; they know `row`, `lane`, `is_row` and `first`. */
  readonly begin?: readonly string[]
  /** The condition under which a row is read, where that is not `is_row`. */
  readonly isRead?: string
  /** WGSL of the first place that is read and of the one past the last. Default: all. */
  readonly range?: readonly [from: string, to: string]
  /** WGSL of `first`, the index of the element 0 of `row`. Default: rows are those of [outer, reduced, inner]. */
  readonly first?: string
  /** WGSL of `at`, the index of the row's element `c`. */
  readonly at?: string
  readonly reductions: readonly Reduction[]
  /** Lines that store the result of each element. */
  readonly each?: readonly string[]
  /** Lines that store the result of a row; one thread runs them. */
  readonly once?: readonly string[]
  /** The reductions and stores within other lines, such as a loop. */
  readonly within?: (lines: readonly string[]) => readonly string[]
}

const maxThreads = 256

/** Threads of a workgroup in which `lanes` lanes share a row. */
export const threadsOf = (lanes: number): number => Math.max(64, lanes)

/**
 * WGSL functions `over_lanes0(thread, value)`, ... for each way of joining: the values of the row's lanes as one, the same on each of them.
 *
 * Every thread of the workgroup must call them.
 * numerics: a binary tree with halving strides, so the order is fixed.
 */
export function laneFunctions(
  joins: readonly Join[],
  lanes: number,
  threads = threadsOf(lanes),
): string {
  const types = [...new Set(joins.map(({ type }) => type))]
  const arrays = types.map((type, n) => `var<workgroup> lanes${n}: array<${type}, ${threads}>;`)
  const functions = joins.map(({ type, by }, n) => {
    const values = `lanes${types.indexOf(type)}`
    const over = `  let lane = thread % ${lanes}u;
  ${values}[thread] = value;
  workgroupBarrier();
  for (var stride = ${lanes / 2}u; stride > 0u; stride /= 2u) {
    if (lane < stride) { ${values}[thread] = join${n}(${values}[thread], ${values}[thread + stride]); }
    workgroupBarrier();
  }
  let result = ${values}[thread - lane];
  workgroupBarrier();
  return result;`
    const join = `fn join${n}(a: ${type}, b: ${type}) -> ${type} { return ${by}; }`
    return lanes === 1
      ? `${join}\nfn over_lanes${n}(thread: u32, value: ${type}) -> ${type} { return value; }`
      : `${join}
fn over_lanes${n}(thread: u32, value: ${type}) -> ${type} {
${over}
}`
  })
  return [...(lanes === 1 ? [] : arrays), ...functions].join('\n')
}

/** The ways of joining that reductions use, each once. */
export const joinsOf = (reductions: readonly Reduction[]): Join[] => [
  ...new Set(reductions.map(({ join }) => join)),
]

/** WGSL of the reductions and stores of one row: `laneFunctions` of its joins must stand before it. */
export function rowLines({
  rows: { reduced, inner },
  lanes,
  ...kernel
}: Omit<RowKernel, 'label' | 'bindings'>): string[] {
  const { begin = [], reductions, each, once, within = (lines) => lines } = kernel
  const joins = joinsOf(reductions)
  // Of rows with one thread each those past the end have left.
  const isRow = lanes === 1 ? undefined : 'is_row'
  const isRead = kernel.isRead ?? isRow
  const { range } = kernel
  const [from, to] = range ? ['begin', 'end'] : ['0u', `${reduced}u`]
  const where = (condition: string | undefined, lines: readonly string[]) =>
    condition === undefined
      ? lines
      : [`if (${condition}) {`, ...lines.map((line) => `  ${line}`), '}']
  const loop = (lines: readonly string[]) => [
    `for (var c = ${lanes === 1 ? from : `${from} + lane`}; c < ${to}; c += ${lanes}u) {`,
    `  let at = ${kernel.at ?? `first + c * ${inner}u`};`,
    ...lines.map((line) => `  ${line}`),
    '}',
  ]
  const lines = [
    ...reductions.flatMap(({ name, join, of, after = [] }) => {
      const n = joins.indexOf(join)
      return [
        `var own_${name}: ${join.type} = ${join.start};`,
        ...where(isRead, loop([`own_${name} = join${n}(own_${name}, ${of});`])),
        `let ${name} = over_lanes${n}(thread, own_${name});`,
        ...after,
      ]
    }),
    ...(each ? where(isRow, loop(each)) : []),
    ...(once ? where(isRow && 'is_row && lane == 0u', once) : []),
  ]
  const bounds = range ? [`let begin = ${range[0]};`, `let end = ${range[1]};`] : []
  return [...bounds, ...begin, ...within(lines)]
}

/** WGSL of `first`, the index of the first element of `row`. */
export const firstOf = ({ reduced, inner }: Pass): string =>
  inner === 1 ? `row * ${reduced}u` : `row / ${inner}u * ${reduced * inner}u + row % ${inner}u`

/**
 * The dispatch of such a kernel; none where there are no rows.
 *
 * Rows are numbered as the elements of [outer, inner], so that without lanes neighbouring threads read neighbouring elements.
 * numerics: a lane joins its elements upwards, from the join's start on; then lanes are joined as `laneFunctions` says.
 */
export function rowKernel(kernel: RowKernel): Dispatch[] {
  const { label, rows, lanes, bindings, constants, functions, reductions } = kernel
  const count = rows.outer * rows.inner
  if (count === 0 || (rows.reduced === 0 && !kernel.once)) return []
  const threads = threadsOf(lanes)
  const groups = linearGroups(ceilDiv(count, threads / lanes))
  const group = `(group.y * ${groups[0]}u + group.x)`
  const lines = [
    `let lane = thread % ${lanes}u;`,
    `let row = ${lanes === threads ? group : `${group} * ${threads / lanes}u + thread / ${lanes}u`};`,
    lanes === 1 ? `if (row >= ${count}u) { return; }` : `let is_row = row < ${count}u;`,
    `let first = ${kernel.first ?? firstOf(rows)};`,
    ...rowLines(kernel),
  ]
  const body = `${functions ? `${functions}\n` : ''}${laneFunctions(joinsOf(reductions), lanes)}
@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
${lines.map((line) => `  ${line}`).join('\n')}
}
`
  return [dispatch({ label, bindings, constants, body, groups })]
}

/** How many threads share a row of `length` elements: one for short rows, else about 8 elements a thread. */
export const lanesFor = (length: number): number =>
  length <= 32 ? 1 : Math.min(maxThreads, 2 ** Math.ceil(Math.log2(length / 8)))

/**
 * The variants of a row kernel: one thread a row, and several.
 *
 * Several pay where rows are long and either contiguous or too few to fill a device.
 */
export function rowVariants<A>(
  rowsOf: (call: OpCall<A>) => Pass,
  kernelOf: (call: OpCall<A>) => Omit<RowKernel, 'rows' | 'lanes'>,
): Pick<Op<A>, 'variants' | 'preferred'> {
  const prefersLanes = (call: OpCall<A>): boolean => {
    const { outer, reduced, inner } = rowsOf(call)
    return lanesFor(reduced) > 1 && (inner === 1 || outer * inner < 1024)
  }
  const lower = (call: OpCall<A>, lanes: number): Lowering => ({
    dispatches: rowKernel({ ...kernelOf(call), rows: rowsOf(call), lanes }),
  })
  return {
    variants: [
      { name: 'naive', lower: (call) => lower(call, 1) },
      {
        name: 'lanes',
        when: (call, limits) =>
          limits.maxInvocations >= maxThreads && lanesFor(rowsOf(call).reduced) > 1,
        lower: (call) => lower(call, lanesFor(rowsOf(call).reduced)),
      },
    ],
    preferred: (call, limits: KernelLimits) =>
      !limits.isWasm && limits.maxInvocations >= maxThreads && prefersLanes(call)
        ? 'lanes'
        : 'naive',
  }
}
