import { RandomStream } from '../util/random.ts'

/** A tensor's part in the plan: how large, from which to which node it is alive, and where it was put. */
export interface Interval {
  readonly sizeBytes: number
  readonly first: number
  last: number
  arena: number
  offset: number
}

/** A tensor that is bound by itself starts at a multiple of this: WebGPU's `minStorageBufferOffsetAlignment`. */
export const arenaAlignment = 256

const aligned = (bytes: number): number => Math.ceil(bytes / arenaAlignment) * arenaAlignment

/** What the search may cost at most, in looks at a neighbour: some 100 ms. Counted, not timed, so that plans repeat. */
const searchBudget = 4_000_000
const mostRounds = 400

/**
 * Puts intervals into arenas, one device buffer each, and returns the arenas' sizes.
 *
 * Intervals that live at the same time do not overlap in an arena; pairs of `apart` are not in one arena at all, since WebGPU forbids a
 * dispatch to read one part of a buffer and write another. No arena passes `largestBytes`.
 * Several greedy orders, then a seeded search from the best until nothing less is possible. The same program gets the same plan.
 * source: greedy by size over offsets, Pisarchyk and Lee, arXiv 2001.03288; the arenas' colours and the search are ours.
 */
export function packIntervals(
  intervals: readonly Interval[],
  apart: readonly (readonly [Interval, Interval])[],
  largestBytes: number,
): number[] {
  const leastBytes = mostAlive(intervals, aligned)
  const packer = new Packer(intervals, apart, largestBytes)
  const ids = intervals.map((_, i) => i)
  const by = (...keys: ((i: Interval) => number)[]) =>
    [...ids].sort((a, b) => {
      for (const key of keys) {
        const difference = key(intervals[b]) - key(intervals[a])
        if (difference !== 0) return difference
      }
      return a - b
    })
  const size = ({ sizeBytes }: Interval) => sizeBytes
  const life = ({ first, last }: Interval) => last - first + 1
  const orders = [
    by(size, life),
    by(life, size),
    by((i) => size(i) * life(i)),
    by(({ first }) => -first, size),
    by(({ last }) => last, size),
  ]
  let order = orders[0]
  let best = packer.pack(order, Number.POSITIVE_INFINITY)!
  for (const other of orders.slice(1)) {
    const packed = packer.pack(other, best.totalBytes - 1)
    if (!packed) continue
    order = other
    best = packed
  }
  const rounds = Math.min(mostRounds, Math.floor(searchBudget / Math.max(1, packer.cost)))
  const random = new RandomStream(0, intervals.length)
  for (let round = 0; round < rounds && best.totalBytes > leastBytes; round++) {
    const next = [...order]
    const [moved] = next.splice(random.below(next.length), 1)
    next.splice(random.below(next.length + 1), 0, moved)
    const packed = packer.pack(next, best.totalBytes)
    if (!packed) continue
    order = next
    best = packed
  }
  intervals.forEach((interval, i) => {
    interval.arena = best.arenas[i]
    interval.offset = best.offsets[i]
  })
  return best.sizes
}

/** The largest sum of sizes, each after `round`, that are alive at once: no plan takes less. */
export function mostAlive(
  intervals: readonly Interval[],
  round: (bytes: number) => number = (bytes) => bytes,
): number {
  const change = new Map<number, number>()
  const add = (at: number, bytes: number) => change.set(at, (change.get(at) ?? 0) + bytes)
  for (const { first, last, sizeBytes } of intervals) {
    add(first, round(sizeBytes))
    add(last + 1, -round(sizeBytes))
  }
  let alive = 0
  let most = 0
  for (const [, bytes] of [...change].sort(([a], [b]) => a - b)) {
    alive += bytes
    most = Math.max(most, alive)
  }
  return most
}

interface Packed {
  readonly arenas: Int32Array
  readonly offsets: Float64Array
  readonly sizes: number[]
  readonly totalBytes: number
}

class Packer {
  readonly #sizes: number[]
  /** By interval: those alive at the same time, and those that may not share an arena with it. */
  readonly #neighbours: number[][]
  readonly #apart: number[][]
  readonly #largestBytes: number
  /** Looks at a neighbour in one packing. */
  readonly cost: number

  constructor(
    intervals: readonly Interval[],
    apart: readonly (readonly [Interval, Interval])[],
    largestBytes: number,
  ) {
    this.#largestBytes = largestBytes
    this.#sizes = intervals.map(({ sizeBytes }) => aligned(sizeBytes))
    this.#neighbours = intervals.map((a) =>
      intervals.flatMap((b, j) => (a !== b && a.first <= b.last && b.first <= a.last ? [j] : [])),
    )
    const idOf = new Map(intervals.map((interval, i) => [interval, i]))
    this.#apart = intervals.map(() => [])
    for (const [a, b] of apart) {
      this.#apart[idOf.get(a)!].push(idOf.get(b)!)
      this.#apart[idOf.get(b)!].push(idOf.get(a)!)
    }
    this.cost = this.#neighbours.reduce((sum, list) => sum + list.length, intervals.length)
  }

  /** Packs in this order: each interval where the arenas grow least, then where the gap is tightest. Gives up above `limitBytes`. */
  pack(order: readonly number[], limitBytes: number): Packed | undefined {
    const count = order.length
    const arenas = new Int32Array(count).fill(-1)
    const offsets = new Float64Array(count)
    const sizes: number[] = []
    let totalBytes = 0
    for (const id of order) {
      const size = this.#sizes[id]
      const taken: number[][] = sizes.map(() => [])
      for (const other of this.#neighbours[id])
        if (arenas[other] >= 0) taken[arenas[other]].push(other)
      const isBarred = new Array<boolean>(sizes.length).fill(false)
      for (const other of this.#apart[id]) if (arenas[other] >= 0) isBarred[arenas[other]] = true
      let chosen = -1
      let chosenOffset = 0
      let leastGrowth = Number.POSITIVE_INFINITY
      let leastGap = Number.POSITIVE_INFINITY
      for (let arena = 0; arena < sizes.length; arena++) {
        if (isBarred[arena]) continue
        const spot = this.#spot(taken[arena], offsets, size, sizes[arena])
        const growth = Math.max(0, spot.offset + size - sizes[arena])
        if (sizes[arena] + growth > this.#largestBytes) continue
        if (growth > leastGrowth || (growth === leastGrowth && spot.gap >= leastGap)) continue
        chosen = arena
        chosenOffset = spot.offset
        leastGrowth = growth
        leastGap = spot.gap
      }
      if (chosen < 0 || leastGrowth > size) {
        chosen = sizes.push(0) - 1
        chosenOffset = 0
        leastGrowth = size
      }
      arenas[id] = chosen
      offsets[id] = chosenOffset
      sizes[chosen] += leastGrowth
      totalBytes += leastGrowth
      if (totalBytes > limitBytes) return undefined
    }
    return { arenas, offsets, sizes, totalBytes }
  }

  /** The tightest free gap of an arena that holds `size` bytes, else the free end. */
  #spot(taken: number[], offsets: Float64Array, size: number, end: number) {
    taken.sort((a, b) => offsets[a] - offsets[b])
    let free = 0
    let best = -1
    let bestGap = Number.POSITIVE_INFINITY
    for (const other of taken) {
      const gap = offsets[other] - free
      if (gap >= size && gap < bestGap) {
        best = free
        bestGap = gap
      }
      free = Math.max(free, offsets[other] + this.#sizes[other])
    }
    const tail = end - free
    if (tail >= size && tail < bestGap) return { offset: free, gap: tail }
    return best >= 0 ? { offset: best, gap: bestGap } : { offset: free, gap: tail }
  }
}
