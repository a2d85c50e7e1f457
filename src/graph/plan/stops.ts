/**
 * Where a program stops between dispatches, to exchange with other devices or ranks.
 *
 *     device   | layer 1   |  | layer 2   |  | layer 3
 *     begin 2  ┘         end 2┘ begin 3    end 3┘
 *     wire      gather 2        gather 3
 *
 * A sync point begins as soon as its inputs are there. One whose inputs are parameters alone begins where the one before it ends, so that a
 * layer's parameters travel while the device computes the layer before, or where it ends itself if that is earlier. Any sync point ends right
 * before its results are first read: sums of gradients travel during the rest of backward.
 */

import type { Op } from '../../kernels/op.ts'
import {
  type Parts,
  partOf,
  partsOf,
  type SyncAttrs,
  syncRanks,
} from '../../kernels/sync-ranks/sync-ranks.ts'
import { type EndAttrs, isEnd, send } from '../../kernels/transfer/ends.ts'
import type { SyncPointPlace } from '../trace/exchange.ts'
import { type GraphNode, type GraphValue, makerOf, storageOf } from '../trace/value.ts'
import type { Place } from './plan.ts'
import { isSameWork, type Work } from './work.ts'

/** A row of a tensor in what travels: elements from `wire` on there, from `start` on in the tensor. */
export interface WireRow {
  readonly value: GraphValue
  readonly start: number
  readonly wire: number
  readonly count: number
}

/** Tensors as they travel: rank after rank, for each rank its parts in order, with their padding. units: elements. */
export interface Wire {
  readonly length: number
  readonly rows: readonly WireRow[]
}

/** An exchange of ranks in the middle of a step. */
export interface PreparedSyncPoint extends SyncPointPlace {
  readonly node: GraphNode
  /** Its place among the step's meetings, the same on all ranks. */
  readonly number: number
  readonly given: Wire
  readonly taken: Wire
}

/** A value that crosses, as its end on the other device knows it too. */
export interface CrossingValue extends EndAttrs {
  readonly value: GraphValue
}

/** Values that leave a part of the step for another device, or arrive, together. */
export interface PreparedCrossing {
  readonly kind: 'send' | 'receive'
  readonly values: readonly CrossingValue[]
}

/** An action after dispatches [.., end); `work`: what those since the stop before are for. `watch`: nothing, unless the run is watched. */
export type Stop = { readonly end: number; readonly work: Work } & (
  | { readonly kind: 'cross'; readonly crossing: PreparedCrossing }
  | { readonly kind: 'begin' | 'end'; readonly syncPoint: PreparedSyncPoint }
  | { readonly kind: 'watch' }
)

type DistributiveOmit<T, K extends PropertyKey> = T extends unknown ? Omit<T, K> : never
type UnlabelledStop = DistributiveOmit<Stop, 'work'>

/** A step as `stopsOf` sees it. */
export interface StoppedStep {
  /** Those that dispatch, in execution order: forward, backward, then what comes after. */
  readonly nodes: readonly GraphNode[]
  /** By node, the dispatches up to its last. */
  readonly ends: readonly number[]
  /** Dispatches of forward and backward. */
  readonly computeEnd: number
  /** Purpose of each node. */
  readonly works: readonly Work[]
  readonly fixed: ReadonlyMap<GraphValue, Place>
  readonly numberOf: (syncPoint: GraphNode) => number
  /** True if there are other ranks; without them, the kernels' results stand. */
  readonly hasRanks: boolean
  /** True if each sync point ends where it begins: a data-parallel model exchanges its gradients by buckets. */
  readonly isExchanged: boolean
}

/** In the order in which a program makes them. */
export function stopsOf(step: StoppedStep): Stop[] {
  const { nodes, ends, hasRanks } = step
  const isSyncPoint = ({ op }: GraphNode) => hasRanks && op === (syncRanks as Op)
  const stopsOfSyncPoint = nodes.some(isSyncPoint) ? syncPointStops(step) : undefined
  const stops: UnlabelledStop[] = []
  let work = step.works[0]
  for (const [at, node] of nodes.entries()) {
    if (!isSameWork(work, step.works[at])) stops.push({ kind: 'watch', end: endBefore(ends, at) })
    work = step.works[at]
    if (isEnd(node.op)) addCrossing(stops, node, ends[at])
    if (isSyncPoint(node)) stops.push(...stopsOfSyncPoint!(node, at))
  }
  return labelled(
    stops.sort((a, b) => a.end - b.end),
    step,
  )
}

/** Says for each stop what the dispatches before it are for. A watch is left out where there is another stop, and where there is nothing else. */
function labelled(
  stops: readonly UnlabelledStop[],
  { ends, works, isExchanged }: StoppedStep,
): Stop[] {
  const held = new Set(stops.flatMap(({ kind, end }) => (kind === 'watch' ? [] : [end])))
  const isSplit = held.size > 0 || works.some(({ task }) => task !== undefined)
  let at = 0
  return stops.flatMap((stop) => {
    while (at < ends.length - 1 && ends[at] < stop.end) at++
    const isNeeded = isSplit && !held.has(stop.end) && !isExchanged
    return stop.kind !== 'watch' || isNeeded ? [{ ...stop, work: works[at] }] : []
  })
}

/** Returns a function that gives the stops of each sync point in turn. */
function syncPointStops(step: StoppedStep): (node: GraphNode, at: number) => UnlabelledStop[] {
  const { nodes, ends, computeEnd, isExchanged } = step
  const firstReader = firstReaders(step)
  const endOf = new Map(nodes.map((node, at) => [node, ends[at]]))
  /** Where the last of a node's inputs is there. */
  const madeBy = ({ inputs }: GraphNode) =>
    Math.max(
      0,
      ...inputs.map((x) => {
        const maker = makerOf(x)
        return maker ? endOf.get(maker)! : 0
      }),
    )
  let prefetchFrom = 0
  return (node, at) => {
    const end = ends[at]
    // What nothing reads has no memory after the node.
    const isKept = (value: GraphValue) =>
      step.fixed.has(storageOf(value)) || firstReader(value, at) < nodes.length
    const syncPoint = syncPointOf(node, step.numberOf(node), isKept)
    const readAt = Math.min(...node.outputs.map((value) => firstReader(value, at)))
    const isCompute = end <= computeEnd
    const latest = Math.min(
      readAt < nodes.length ? endBefore(ends, readAt) : Number.POSITIVE_INFINITY,
      isCompute ? computeEnd : ends[ends.length - 1],
    )
    const readsParameters = node.inputs.every((x) => storageOf(x).leaf?.kind === 'parameter')
    const finish = isExchanged ? end : latest
    const ready = readsParameters ? Math.min(prefetchFrom, finish) : madeBy(node)
    const begin = !isCompute || isExchanged ? end : ready
    if (readsParameters) prefetchFrom = finish
    return [
      { kind: 'begin', end: begin, syncPoint },
      { kind: 'end', end: finish, syncPoint },
    ]
  }
}

const endBefore = (ends: readonly number[], at: number) => (at === 0 ? 0 : ends[at - 1])

/** Returns the position of the first node after `at` that reads a value, or the pool in which it lies; the number of nodes if none does. */
function firstReaders({ nodes, fixed }: StoppedStep): (value: GraphValue, at: number) => number {
  const homeOf = (value: GraphValue): object => {
    const root = storageOf(value)
    const place = fixed.get(root)
    if (place?.kind === 'pool') return place.pool
    return root.leaf?.kind === 'pool' ? root.leaf.pool : root
  }
  const readers = new Map<object, number[]>()
  for (const [at, { inputs }] of nodes.entries()) {
    for (const home of new Set(inputs.map(homeOf))) {
      const known = readers.get(home)
      if (known) known.push(at)
      else readers.set(home, [at])
    }
  }
  return (value, at) => readers.get(homeOf(value))?.find((reader) => reader > at) ?? nodes.length
}

function syncPointOf(
  node: GraphNode,
  number: number,
  isKept: (value: GraphValue) => boolean,
): PreparedSyncPoint {
  const attrs = node.attrs as SyncAttrs
  const { syncPoint, group, rank, size } = attrs
  const parts = node.inputs.map(({ type }, at) => partsOf(type.shape[0], at, attrs))
  const all = Array.from({ length: size }, (_, at) => at)
  // A part alone begins its tensor; of a whole tensor every rank has its own.
  const ownParts = (values: readonly GraphValue[]) =>
    wireOf(values, parts, [syncPoint === 'sum' ? 0 : rank], true)
  const taken =
    syncPoint === 'gather' ? wireOf(node.outputs, parts, all, false) : ownParts(node.outputs)
  return {
    node,
    number,
    syncPoint,
    group,
    given: syncPoint === 'scatter' ? wireOf(node.inputs, parts, all, false) : ownParts(node.inputs),
    taken: { ...taken, rows: taken.rows.filter(({ value }) => isKept(value)) },
  }
}

/** `isPart`: the tensors hold the part of the one rank. */
function wireOf(
  values: readonly GraphValue[],
  parts: readonly Parts[],
  ranks: readonly number[],
  isPart: boolean,
): Wire {
  let wire = 0
  const rows: WireRow[] = []
  for (const rank of ranks) {
    for (const [at, value] of values.entries()) {
      const { start, count } = partOf(parts[at], rank)
      if (count > 0) rows.push({ value, start: isPart ? 0 : start, wire, count })
      wire += parts[at].length
    }
  }
  return { length: wire, rows }
}

/** Neighbours without a dispatch between them cross together. */
function addCrossing(stops: UnlabelledStop[], node: GraphNode, end: number): void {
  const [kind, value] =
    node.op === (send as Op)
      ? (['send', node.inputs[0]] as const)
      : (['receive', node.outputs[0]] as const)
  const one = { ...(node.attrs as EndAttrs), value }
  const last = stops.at(-1)
  const isJoined = last?.kind === 'cross' && last.crossing.kind === kind && last.end === end
  if (isJoined) stops.pop()
  const values = isJoined ? [...last.crossing.values, one] : [one]
  stops.push({ kind: 'cross', end, crossing: { kind, values } })
}

/** The meetings of a step that has these stops, in the order in which they begin. */
export const syncPointsOf = (stops: readonly Stop[]): PreparedSyncPoint[] =>
  stops.flatMap((stop) => (stop.kind === 'begin' ? [stop.syncPoint] : []))

export const crossingsOf = (stops: readonly Stop[]): PreparedCrossing[] =>
  stops.flatMap((stop) => (stop.kind === 'cross' ? [stop.crossing] : []))
