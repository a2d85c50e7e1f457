import { RandomStream } from '../../util/random.ts'

/** A tensor's part in the plan: how large, from which to which node it is alive, and where it was put. */
export interface Interval {
  readonly sizeBytes: number
  readonly first: number
  last: number
  arena: number
  offset: number
}

/** Alignment of a tensor that is bound separately: WebGPU's `minStorageBufferOffsetAlignment`. */
export const arenaAlignment = 256

const aligned = (bytes: number): number => Math.ceil(bytes / arenaAlignment) * arenaAlignment

/** Maximum cost of the search, in comparisons with another interval: some 100 ms. Counted, not timed, so that plans repeat. */
const searchBudget = 30_000_000
const maxRounds = 3000
/** Bytes above the bound for which the search would not pay: a sixteenth, of at least 16 KiB and at most 256 KiB. */
const spareBytes = (boundBytes: number) => Math.max(2 ** 14, Math.min(boundBytes / 16, 2 ** 18))
/** Equally good spots among which the search chooses. */
const maxTurns = 4

/**
 * Puts intervals into arenas, one device buffer each, and returns the arenas' sizes.
 *
 * Intervals that live at the same time do not overlap in an arena; pairs of `apart` are not in one arena at all, since WebGPU forbids a
 * dispatch to read one part of a buffer and write another. No arena passes `largestBytes`.
 * Several greedy orders, then at most `largestRounds` of a seeded search from the best until it is close to what is possible. The same program gets the same plan.
 * source: greedy by size over offsets, Pisarchyk and Lee, arXiv 2001.03288; the arenas' colours and the search are ours.
 */
export function packIntervals(
  intervals: readonly Interval[],
  apart: readonly (readonly [Interval, Interval])[],
  largestBytes: number,
  largestRounds = maxRounds,
): number[] {
  const minBytes = maxAlive(intervals, aligned)
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
  let turns = new Uint8Array(intervals.length)
  let best = packer.pack(order, turns, Number.POSITIVE_INFINITY)!
  for (const other of orders.slice(1)) {
    const packed = packer.pack(other, turns, best.totalBytes - 1)
    if (!packed) continue
    order = other
    best = packed
  }
  const rounds = Math.min(
    largestRounds,
    Math.floor(searchBudget / Math.max(1, intervals.length ** 2)),
  )
  const random = new RandomStream(0, intervals.length)
  const goalBytes = minBytes + spareBytes(minBytes)
  for (let round = 0; round < rounds && best.totalBytes > goalBytes; round++) {
    const nextOrder = [...order]
    const nextTurns = turns.slice()
    // One change at a time: another place in the order, or another of several equally good spots.
    if (random.below(2) === 0) {
      const [moved] = nextOrder.splice(random.below(nextOrder.length), 1)
      nextOrder.splice(random.below(nextOrder.length + 1), 0, moved)
    } else nextTurns[random.below(nextTurns.length)] = random.below(maxTurns)
    const packed = packer.pack(nextOrder, nextTurns, best.totalBytes)
    if (!packed) continue
    order = nextOrder
    turns = nextTurns
    best = packed
  }
  intervals.forEach((interval, i) => {
    interval.arena = best.arenas[i]
    interval.offset = best.offsets[i]
  })
  return best.sizes
}

/** The largest sum of sizes, each after `round`, that are alive at once: no plan takes less. */
export function maxAlive(
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
  let max = 0
  for (const [, bytes] of [...change].sort(([a], [b]) => a - b)) {
    alive += bytes
    max = Math.max(max, alive)
  }
  return max
}

interface Packed {
  readonly arenas: Int32Array
  readonly offsets: Float64Array
  readonly sizes: number[]
  readonly totalBytes: number
}

interface Spot {
  readonly arena: number
  readonly offset: number
  /** Free bytes from there on. */
  readonly gap: number
}

class Packer {
  readonly #sizes: Float64Array
  readonly #first: Int32Array
  readonly #last: Int32Array
  /** By interval: those that may not share an arena with it. */
  readonly #apart: number[][]
  readonly #largestBytes: number

  constructor(
    intervals: readonly Interval[],
    apart: readonly (readonly [Interval, Interval])[],
    largestBytes: number,
  ) {
    this.#largestBytes = largestBytes
    this.#sizes = Float64Array.from(intervals, ({ sizeBytes }) => aligned(sizeBytes))
    this.#first = Int32Array.from(intervals, ({ first }) => first)
    this.#last = Int32Array.from(intervals, ({ last }) => last)
    const idOf = new Map(intervals.map((interval, i) => [interval, i]))
    this.#apart = intervals.map(() => [])
    for (const [a, b] of apart) {
      this.#apart[idOf.get(a)!].push(idOf.get(b)!)
      this.#apart[idOf.get(b)!].push(idOf.get(a)!)
    }
  }

  /**
   * Packs in this order, each interval where the arenas grow least; of several such spots the tightest, or as many further as `turns`
   * says. Gives up above `limitBytes`.
   */
  pack(order: readonly number[], turns: Uint8Array, limitBytes: number): Packed | undefined {
    const arenas = new Int32Array(order.length).fill(-1)
    const offsets = new Float64Array(order.length)
    const sizes: number[] = []
    /** By arena: its intervals in the order of their offsets. */
    const users: number[][] = []
    let totalBytes = 0
    for (const id of order) {
      const size = this.#sizes[id]
      const isBarred = sizes.map(() => false)
      for (const other of this.#apart[id]) if (arenas[other] >= 0) isBarred[arenas[other]] = true
      let minGrowth = size
      let spots: Spot[] = []
      for (let arena = 0; arena < sizes.length; arena++) {
        if (isBarred[arena]) continue
        const spot = this.#spot(id, arena, users[arena], offsets, sizes[arena])
        const growth = Math.max(0, spot.offset + size - sizes[arena])
        if (growth > minGrowth || sizes[arena] + growth > this.#largestBytes) continue
        if (growth < minGrowth) spots = []
        minGrowth = growth
        spots.push(spot)
      }
      if (minGrowth === size) {
        spots.push({ arena: sizes.length, offset: 0, gap: Number.POSITIVE_INFINITY })
      }
      spots.sort((a, b) => a.gap - b.gap)
      const { arena: chosen, offset: chosenOffset } = spots[turns[id] % spots.length]
      if (chosen === sizes.length) {
        sizes.push(0)
        users.push([])
      }
      arenas[id] = chosen
      offsets[id] = chosenOffset
      sizes[chosen] += minGrowth
      totalBytes += minGrowth
      if (totalBytes > limitBytes) return undefined
      const list = users[chosen]
      let at = list.length
      while (at > 0 && offsets[list[at - 1]] > chosenOffset) at--
      list.splice(at, 0, id)
    }
    return { arenas, offsets, sizes, totalBytes }
  }

  /** The tightest gap of an arena that is free while interval `id` lives and holds it, else the free end. */
  #spot(
    id: number,
    arena: number,
    users: readonly number[],
    offsets: Float64Array,
    end: number,
  ): Spot {
    const size = this.#sizes[id]
    const first = this.#first[id]
    const last = this.#last[id]
    let free = 0
    let best = -1
    let bestGap = Number.POSITIVE_INFINITY
    for (const other of users) {
      if (this.#last[other] < first || this.#first[other] > last) continue
      const gap = offsets[other] - free
      if (gap >= size && gap < bestGap) {
        best = free
        bestGap = gap
      }
      free = Math.max(free, offsets[other] + this.#sizes[other])
    }
    const tail = end - free
    const usesTail = best < 0 || (tail >= size && tail < bestGap)
    return usesTail ? { arena, offset: free, gap: tail } : { arena, offset: best, gap: bestGap }
  }
}
