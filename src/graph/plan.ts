import type { Dispatch, Operand } from '../kernels/op.ts'
import { invariant } from '../util/errors.ts'
import { RandomStream } from '../util/random.ts'
import { countElements, type TensorType } from '../util/shape.ts'
import type { LoweredNode } from './lower.ts'
import type { Parameter } from './parameter.ts'
import type { Pool } from './pool.ts'
import { type GraphValue, storageOf } from './value.ts'

/** Where a tensor of a program lies. */
export type Place =
  | { readonly kind: 'input'; readonly name: string }
  | { readonly kind: 'output'; readonly index: number }
  | { readonly kind: 'pool'; readonly pool: Pool; readonly start: number }
  | { readonly kind: 'parameter'; readonly parameter: Parameter }
  | { readonly kind: 'shared'; readonly object: number }
  | { readonly kind: 'scalars' }

/** One dispatch with the place of each binding. */
export interface PlannedDispatch {
  readonly dispatch: Dispatch
  readonly bindings: readonly { readonly place: Place; readonly sizeBytes: number }[]
}

export interface Plan {
  readonly dispatches: readonly PlannedDispatch[]
  /** `dispatches` index after the last kernel of each node, by node position. */
  readonly endOfNode: readonly number[]
  /** Sizes of the buffers that intermediates share. */
  readonly sharedBytes: readonly number[]
  /** What intermediates take, and the least that any plan could take: the largest sum of sizes alive at once. */
  readonly peakBytes: number
  readonly lowerBoundBytes: number
}

export interface PlanOptions {
  /** False gives every intermediate a buffer of its own, so that a mistake in sharing shows as a difference. Default true. */
  readonly sharesBuffers?: boolean
}

interface Interval {
  sizeBytes: number
  first: number
  last: number
  object: number
}

const bytesOf = (type: TensorType): number => Math.max(4, countElements(type.shape) * 4)

/**
 * Gives every tensor a place: fixed ones as told, intermediates in shared buffers by liveness, larger ones first.
 *
 * A dispatch never finds one buffer both read and written, since tensors alive at the same node share no buffer.
 * source: shared objects, Pisarchyk and Lee, arXiv 2001.03288; theirs is greedy by size alone.
 */
export function planMemory(
  nodes: readonly LoweredNode[],
  fixed: ReadonlyMap<GraphValue, Place>,
  { sharesBuffers = true }: PlanOptions = {},
): Plan {
  const intervals = new Map<GraphValue, Interval>()
  const touch = (value: GraphValue, at: number) => {
    const root = storageOf(value)
    if (fixed.has(root) || root.leaf) return
    const known = intervals.get(root)
    if (known) known.last = at
    else intervals.set(root, { sizeBytes: bytesOf(root.type), first: at, last: at, object: -1 })
  }
  const scratch: Interval[][] = []
  nodes.forEach(({ node, lowering }, at) => {
    for (const value of [...node.outputs, ...node.inputs]) touch(value, at)
    scratch.push(
      (lowering.scratch ?? []).map((type) => ({
        sizeBytes: bytesOf(type),
        first: at,
        last: at,
        object: -1,
      })),
    )
  })
  const all = [...intervals.values(), ...scratch.flat()]
  const lowerBoundBytes = largestSumAlive(all, nodes.length)
  const sharedBytes = sharesBuffers ? assignObjects(all, lowerBoundBytes) : assignApart(all)

  const placeOf = (value: GraphValue): Place => {
    const root = storageOf(value)
    const place = fixed.get(root)
    if (place) return place
    const { leaf } = root
    if (leaf?.kind === 'input') return { kind: 'input', name: leaf.name }
    if (leaf?.kind === 'parameter') return { kind: 'parameter', parameter: leaf.parameter }
    if (leaf?.kind === 'pool') return { kind: 'pool', pool: leaf.pool, start: leaf.start }
    const interval = intervals.get(root)
    invariant(interval, () => 'a tensor has no place in the plan')
    return { kind: 'shared', object: interval.object }
  }
  const dispatches: PlannedDispatch[] = []
  const endOfNode: number[] = []
  nodes.forEach(({ node, lowering }, at) => {
    const bind = (operand: Operand): { place: Place; sizeBytes: number } => {
      if (operand === 'scalars') return { place: { kind: 'scalars' }, sizeBytes: 0 }
      if ('scratch' in operand) {
        const { object, sizeBytes } = scratch[at][operand.scratch]
        return { place: { kind: 'shared', object }, sizeBytes }
      }
      const value = 'in' in operand ? node.inputs[operand.in] : node.outputs[operand.out]
      return { place: placeOf(value), sizeBytes: bytesOf(value.type) }
    }
    for (const dispatch of lowering.dispatches) {
      dispatches.push({
        dispatch,
        bindings: dispatch.bindings.map(({ operand }) => bind(operand)),
      })
    }
    endOfNode.push(dispatches.length)
  })
  return {
    dispatches,
    endOfNode,
    sharedBytes,
    peakBytes: sharedBytes.reduce((sum, bytes) => sum + bytes, 0),
    lowerBoundBytes,
  }
}

/** An object for each interval. */
function assignApart(intervals: readonly Interval[]): number[] {
  intervals.forEach((interval, object) => {
    interval.object = object
  })
  return intervals.map(({ sizeBytes }) => sizeBytes)
}

/** Orders that are tried after the first while the plan is above its lower bound. */
const searchRounds = 400

/**
 * Sets each interval's object and returns the objects' sizes.
 *
 * Larger intervals first into the tightest free object; then a seeded search over changes of that order, kept when the sum shrinks.
 * The same program always gets the same plan.
 */
function assignObjects(intervals: readonly Interval[], lowerBoundBytes: number): number[] {
  let order = [...intervals].sort((a, b) => b.sizeBytes - a.sizeBytes || a.first - b.first)
  let best = place(order)
  const random = new RandomStream(0, intervals.length)
  for (let round = 0; round < searchRounds && best.totalBytes > lowerBoundBytes; round++) {
    const next = [...order]
    const [moved] = next.splice(random.below(next.length), 1)
    next.splice(random.below(next.length + 1), 0, moved)
    const placed = place(next)
    if (placed.totalBytes > best.totalBytes) continue
    order = next
    best = placed
  }
  order.forEach((interval, i) => {
    interval.object = best.objectOf[i]
  })
  return best.sizes
}

/** Puts intervals, in order, each into the free object that grows least, then wastes least; makes a new one when that grows less. */
function place(order: readonly Interval[]) {
  const sizes: number[] = []
  const users: Interval[][] = []
  const objectOf = order.map((interval) => {
    let chosen = -1
    let leastGrowth = interval.sizeBytes
    let leastWaste = Number.POSITIVE_INFINITY
    sizes.forEach((sizeBytes, object) => {
      const growth = Math.max(0, interval.sizeBytes - sizeBytes)
      const waste = Math.max(0, sizeBytes - interval.sizeBytes)
      if (growth > leastGrowth || (growth === leastGrowth && waste >= leastWaste)) return
      const isFree = users[object].every(
        (user) => user.last < interval.first || interval.last < user.first,
      )
      if (!isFree) return
      chosen = object
      leastGrowth = growth
      leastWaste = waste
    })
    if (chosen < 0) {
      chosen = sizes.push(0) - 1
      users.push([])
    }
    sizes[chosen] = Math.max(sizes[chosen], interval.sizeBytes)
    users[chosen].push(interval)
    return chosen
  })
  return { sizes, objectOf, totalBytes: sizes.reduce((sum, bytes) => sum + bytes, 0) }
}

function largestSumAlive(intervals: readonly Interval[], times: number): number {
  const change = new Array<number>(times + 1).fill(0)
  for (const { first, last, sizeBytes } of intervals) {
    change[first] += sizeBytes
    change[last + 1] -= sizeBytes
  }
  let alive = 0
  let largest = 0
  for (const delta of change) {
    alive += delta
    largest = Math.max(largest, alive)
  }
  return largest
}
