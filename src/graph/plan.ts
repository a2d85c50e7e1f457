import type { Dispatch, Operand } from '../kernels/op.ts'
import { invariant } from '../util/errors.ts'
import { countElements, type TensorType } from '../util/shape.ts'
import { type Interval, mostAlive, packIntervals } from './arena.ts'
import type { LoweredNode } from './lower.ts'
import type { Pool } from './pool.ts'
import type { StoredTensor } from './stored-tensor.ts'
import { type GraphValue, storageOf } from './value.ts'

/** Where a tensor of a program lies. */
export type Place =
  | { readonly kind: 'input'; readonly name: string }
  | { readonly kind: 'output'; readonly index: number }
  | { readonly kind: 'pool'; readonly pool: Pool; readonly start: number }
  | { readonly kind: 'stored'; readonly tensor: StoredTensor }
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
  /** `dispatches` index after the last kernel of each node, by node position. */
  readonly endOfNode: readonly number[]
  /** Sizes of the buffers that intermediates share. */
  readonly sharedBytes: readonly number[]
  /** What intermediates take, and the least that any plan could take: the largest sum of sizes alive at once. */
  readonly peakBytes: number
  readonly lowerBoundBytes: number
}

const newInterval = (type: TensorType, at: number): Interval => ({
  sizeBytes: bytesOf(type),
  first: at,
  last: at,
  arena: -1,
  offset: 0,
})

const bytesOf = (type: TensorType): number => Math.max(4, countElements(type.shape) * 4)

/**
 * Gives every tensor a place: fixed ones as told, intermediates at offsets of a few shared buffers by liveness.
 *
 * What a dispatch writes is never in a buffer that it reads: WebGPU checks that by whole buffers.
 * No shared buffer is larger than `largestBufferBytes`.
 */
export function planMemory(
  nodes: readonly LoweredNode[],
  fixed: ReadonlyMap<GraphValue, Place>,
  largestBufferBytes = Number.POSITIVE_INFINITY,
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
  const lowerBoundBytes = mostAlive(all)
  const intervalOf = ({ node }: LoweredNode, at: number, operand: Operand) => {
    if (operand === 'scalars') return undefined
    if ('scratch' in operand) return scratch[at][operand.scratch]
    return intervals.get(
      storageOf('in' in operand ? node.inputs[operand.in] : node.outputs[operand.out]),
    )
  }
  const apart = nodes.flatMap((lowered, at) =>
    lowered.lowering.dispatches.flatMap(({ bindings }) => {
      const bound = bindings.map(({ access, operand }) => ({
        isRead: access === 'read',
        interval: intervalOf(lowered, at, operand),
      }))
      const of = (isRead: boolean) =>
        bound.flatMap((b) => (b.isRead === isRead && b.interval ? [b.interval] : []))
      const written = of(false)
      return of(true).flatMap((read) => written.map((write) => [read, write] as const))
    }),
  )
  const sharedBytes = packIntervals(all, apart, largestBufferBytes)

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
      dispatches.push({
        dispatch,
        bindings: dispatch.bindings.map(({ operand }) => bind(operand)),
      })
    }
    endOfNode.push(dispatches.length)
  })
  return {
    placeOf,
    dispatches,
    endOfNode,
    sharedBytes,
    peakBytes: sharedBytes.reduce((sum, bytes) => sum + bytes, 0),
    lowerBoundBytes,
  }
}
