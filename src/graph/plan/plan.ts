import type { Dispatch, Operand } from '../../kernels/op.ts'
import { invariant } from '../../util/errors.ts'
import { bytesOf, type TensorType } from '../../util/shape.ts'
import { type Interval, maxAlive, packIntervals } from '../memory/arena.ts'
import type { Pool } from '../memory/pool.ts'
import { type GraphValue, type StoredLeaf, storageOf } from '../trace/value.ts'
import type { LoweredNode } from './lower.ts'
import { type Together, togetherOf } from './together.ts'

/** Where a tensor of a program lies. */
export type Place =
  | { readonly kind: 'input'; readonly name: string }
  | { readonly kind: 'output'; readonly index: number }
  | { readonly kind: 'pool'; readonly pool: Pool; readonly start: number }
  | { readonly kind: 'stored'; readonly tensor: StoredLeaf }
  /** Part of a buffer that intermediates share, from byte `offset` on. */
  | { readonly kind: 'shared'; readonly object: number; readonly offset: number }
  | { readonly kind: 'scalars' }

/** One dispatch with the place of each binding. */
export interface PlannedDispatch {
  readonly dispatch: Dispatch
  readonly bindings: readonly { readonly place: Place; readonly sizeBytes: number }[]
}

export interface Plan {
  /** Where a value of the program lies, while it is alive. */
  placeOf(value: GraphValue): Place
  readonly dispatches: readonly PlannedDispatch[]
  /** By dispatch, of a program with an op that adds to sums: several runs may be computed together. */
  readonly together: readonly Together[] | undefined
  /** `dispatches` index after the last kernel of each node, by node position. */
  readonly endOfNode: readonly number[]
  /** Sizes of the buffers that intermediates share. */
  readonly sharedBytes: readonly number[]
  /** Bytes of the intermediates, and the minimum of any plan: the largest sum of sizes alive at once. */
  readonly peakBytes: number
  readonly lowerBoundBytes: number
}

/** Options for planning a program's memory. */
export interface PlanOptions {
  /** False gives every intermediate its own buffer, so that a mistake in sharing shows as a difference. Default true. */
  readonly sharesBuffers?: boolean
}

const newInterval = (type: TensorType, at: number): Interval => ({
  sizeBytes: bytesOf(type),
  first: at,
  last: at,
  arena: -1,
  offset: 0,
})

/**
 * Gives every tensor a place: fixed ones where the caller says, intermediates at offsets of a few shared buffers by liveness.
 *
 * What a dispatch writes is not in a buffer that it binds for reading alone: WebGPU checks that by whole buffers. Where keeping the two
 * apart costs memory, a dispatch binds what it reads there as writable too.
 * No shared buffer is larger than `largestBufferBytes`.
 */
export function planMemory(
  nodes: readonly LoweredNode[],
  fixed: ReadonlyMap<GraphValue, Place>,
  largestBufferBytes = Number.POSITIVE_INFINITY,
  { sharesBuffers = true }: PlanOptions = {},
): Plan {
  const intervals = new Map<GraphValue, Interval>()
  const touch = (value: GraphValue, at: number) => {
    const root = storageOf(value)
    if (fixed.has(root) || root.leaf) return
    const known = intervals.get(root)
    if (known) known.last = at
    else intervals.set(root, newInterval(root.type, at))
  }
  const scratch: Interval[][] = []
  nodes.forEach(({ node, lowering }, at) => {
    for (const value of [...node.outputs, ...node.inputs]) touch(value, at)
    scratch.push((lowering.scratch ?? []).map((type) => newInterval(type, at)))
  })
  const all = [...intervals.values(), ...scratch.flat()]
  const lowerBoundBytes = maxAlive(all)
  const intervalOf = ({ node }: LoweredNode, at: number, operand: Operand) => {
    if (operand === 'scalars') return undefined
    if ('scratch' in operand) return scratch[at][operand.scratch]
    return intervals.get(
      storageOf('in' in operand ? node.inputs[operand.in] : node.outputs[operand.out]),
    )
  }
  const kernels = nodes.flatMap((lowered, at) =>
    lowered.lowering.dispatches.map((dispatch): PlannedKernel => {
      const bound = dispatch.bindings.map(({ access, operand }) => ({
        isRead: access === 'read',
        interval: intervalOf(lowered, at, operand),
      }))
      const of = (isRead: boolean) =>
        bound.flatMap((b) => (b.isRead === isRead && b.interval ? [b.interval] : []))
      const read = of(true)
      const written = of(false)
      return {
        dispatch,
        at,
        apart: read.flatMap((one) => written.map((other) => [one, other] as const)),
        // Barriers need uniform control flow, which values of writable bindings cannot give; one tensor bound twice would overlap itself.
        canShare: new Set(read).size === read.length && !needsUniformity.test(dispatch.wgsl),
      }
    }),
  )
  const sharedBytes = sharesBuffers ? packKernels(all, kernels, largestBufferBytes) : putApart(all)

  const placeOf = (value: GraphValue): Place => {
    const root = storageOf(value)
    const place = fixed.get(root)
    if (place) return place
    const { leaf } = root
    if (leaf?.kind === 'input') return { kind: 'input', name: leaf.name }
    if (leaf?.kind === 'parameter') return { kind: 'stored', tensor: leaf.parameter }
    if (leaf?.kind === 'buffer') return { kind: 'stored', tensor: leaf.buffer }
    if (leaf?.kind === 'pool') return { kind: 'pool', pool: leaf.pool, start: leaf.start }
    const interval = intervals.get(root)
    invariant(interval, () => 'a tensor has no place in the plan')
    return { kind: 'shared', object: interval.arena, offset: interval.offset }
  }
  const dispatches: PlannedDispatch[] = []
  const endOfNode: number[] = []
  nodes.forEach(({ node, lowering }, at) => {
    const bind = (operand: Operand): { place: Place; sizeBytes: number } => {
      if (operand === 'scalars') return { place: { kind: 'scalars' }, sizeBytes: 0 }
      if ('scratch' in operand) {
        const { arena: object, offset, sizeBytes } = scratch[at][operand.scratch]
        return { place: { kind: 'shared', object, offset }, sizeBytes }
      }
      const value = 'in' in operand ? node.inputs[operand.in] : node.outputs[operand.out]
      return { place: placeOf(value), sizeBytes: bytesOf(value.type) }
    }
    for (const dispatch of lowering.dispatches) {
      const bindings = dispatch.bindings.map(({ operand }) => bind(operand))
      dispatches.push({
        dispatch: withWritableReads(dispatch, bindings.map(bufferOf)),
        bindings,
      })
    }
    endOfNode.push(dispatches.length)
  })
  const users = (interval: Interval) =>
    nodes.filter(({ node }) =>
      [...node.inputs, ...node.outputs].some(
        (value) => intervals.get(storageOf(value)) === interval,
      ),
    ).length
  const together = nodes.some(({ node }) => node.op.addsUp)
    ? togetherOf<Interval>(nodes, users, (lowered, at, operand) => {
        const interval = intervalOf(lowered, at, operand)
        if (interval) return interval
        if (operand === 'scalars' || 'scratch' in operand) return 'own'
        const { node } = lowered
        const value = 'in' in operand ? node.inputs[operand.in] : node.outputs[operand.out]
        const { kind } = placeOf(value)
        return kind === 'pool' || kind === 'stored' ? 'common' : 'own'
      })
    : undefined
  return {
    placeOf,
    dispatches,
    together,
    endOfNode,
    sharedBytes,
    peakBytes: sharedBytes.reduce((sum, bytes) => sum + bytes, 0),
    lowerBoundBytes,
  }
}

/** An arena for each interval. */
function putApart(intervals: readonly Interval[]): number[] {
  intervals.forEach((interval, arena) => {
    interval.arena = arena
    interval.offset = 0
  })
  return intervals.map(({ sizeBytes }) => sizeBytes)
}

/** A dispatch of the plan: the tensors that its reading bindings and its writing ones keep apart. */
interface PlannedKernel {
  readonly dispatch: Dispatch
  /** The position of its node. */
  readonly at: number
  readonly apart: readonly (readonly [Interval, Interval])[]
  readonly canShare: boolean
}

const needsUniformity = /barrier|subgroup|workgroupUniformLoad/i

/** Above this share of the least, dispatches that bind what they read as writable are looked for. */
const enough = 1.1
const maxTries = 16
/** Looks at another interval that a try may cost. */
const budgetOfTry = 3_000_000
const roundsOfTry = 300

/** Packs. Some dispatches may read and write one buffer: those around the largest sum of sizes are tried first. */
function packKernels(
  intervals: readonly Interval[],
  kernels: readonly PlannedKernel[],
  largestBytes: number,
): number[] {
  const sharing = new Set<Dispatch>()
  const pack = (without?: Dispatch, largestRounds?: number) => {
    const held = kernels.filter(({ dispatch }) => dispatch !== without && !sharing.has(dispatch))
    const pairs = held.flatMap(({ apart }) => apart)
    return packIntervals(intervals, pairs, largestBytes, largestRounds)
  }
  const rounds = Math.min(roundsOfTry, Math.floor(budgetOfTry / intervals.length ** 2))
  const total = (sizes: readonly number[]) => sizes.reduce((sum, bytes) => sum + bytes, 0)
  let sharedBytes = pack()
  const min = maxAlive(intervals)
  if (total(sharedBytes) <= enough * min) return sharedBytes
  const aliveAt = (at: number) =>
    intervals
      .filter(({ first, last }) => first <= at && at <= last)
      .reduce((sum, { sizeBytes }) => sum + sizeBytes, 0)
  const candidates = kernels
    .filter(({ canShare, apart }) => canShare && apart.length > 0)
    .map(({ dispatch, at }) => ({ dispatch, alive: aliveAt(at) }))
    .sort((a, b) => b.alive - a.alive)
    .slice(0, maxTries)
  for (const { dispatch } of candidates) {
    if (total(pack(dispatch, rounds)) >= total(sharedBytes)) continue
    sharing.add(dispatch)
    sharedBytes = pack()
    if (total(sharedBytes) <= enough * min) return sharedBytes
  }
  // The last try may have left other places behind.
  return pack()
}

/** What tells buffers apart that one dispatch may both read and write: arenas, and pools, where gradients of one op may lie in one bucket. */
const bufferOf = ({ place }: { place: Place }): unknown =>
  place.kind === 'shared' ? place.object : place.kind === 'pool' ? place.pool : undefined

/** The dispatch with every binding of a buffer that it writes declared as writable; the shader does the same. */
function withWritableReads(dispatch: Dispatch, buffers: readonly unknown[]): Dispatch {
  const written = new Set(buffers.filter((_, i) => dispatch.bindings[i].access !== 'read'))
  written.delete(undefined)
  const isBoth = dispatch.bindings.map(
    ({ access }, i) => access === 'read' && written.has(buffers[i]),
  )
  if (!isBoth.includes(true)) return dispatch
  let { wgsl } = dispatch
  const bindings = dispatch.bindings.map((binding, i) => {
    if (!isBoth[i]) return binding
    const declaration = `@binding(${i}) var<storage, read> `
    invariant(wgsl.includes(declaration), () => `${dispatch.label} declares binding ${i} otherwise`)
    wgsl = wgsl.replace(declaration, `@binding(${i}) var<storage, read_write> `)
    return { ...binding, access: 'update' as const }
  })
  return { ...dispatch, wgsl, bindings }
}
