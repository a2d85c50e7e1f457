import * as dist from '../../src/entries/distributed.ts'
import type { ElementArray, ReduceOp } from '../../src/peer/collective/element.ts'
import type { ProcessGroup } from '../../src/peer/group/group.ts'
import { seededRandom } from '../../src/util/virtual-env.ts'
import { bytes, type Element, elements, opsOf, reduced } from './collective-reference.ts'

/**
 * The table of torch.distributed's functions by backend: every cell as something that a rank runs and checks alone, wherever it is.
 *
 * Ranks know each other's inputs, which are drawn from seeds, so each holds its own results against plain loops, bit for bit.
 */

const upToNine = [1, 2, 3, 4, 5, 6, 7, 8, 9] as const
/** How many ranks the specs run on each backend. */
export const cellBackends = {
  webrtc: upToNine,
  broadcast: upToNine,
  local: upToNine,
  relay: upToNine,
} as const
export type CellBackend = keyof typeof cellBackends

/** A prime, and a length at which all-gathers and sums go round the ring. */
const [prime, large] = [997, 70_001]
/** These take or give an array for each rank, together as many elements. */
const ofAllRanks = new Set([
  'reduceScatter',
  'reduceScatterTensor',
  'allGather',
  'allGatherIntoTensor',
  'gather',
  'scatter',
  'allToAll',
  'allToAllSingle',
])
/** Beyond this size of a group tabs of one machine take long, and large arrays too. */
const fewRanks = 4

/** Which arrays a function is run with: `pairs` are all lengths with all types. */
export type CellSet = 'pairs' | 'cover'

/** What tabs run on `size` ranks; ranks of one context run all pairs. `TABRING_CELLS=pairs` runs these in tabs too. */
export const cellsInTabs = (size: number): CellSet => (size <= fewRanks ? 'pairs' : 'cover')

/**
 * Types and lengths for groups of `size`. A cover has every type and every length; those of five sizes that follow one another have every
 * pair of the two.
 */
function arraysFor(call: string, size: number, set: CellSet): { type: string; length: number }[] {
  const types = Object.keys(elements)
  const lengths = [...new Set([0, 1, size - 1, size, size + 1, prime])]
  const small =
    set === 'pairs'
      ? types.flatMap((type) => lengths.map((length) => ({ type, length })))
      : lengths.map((length, at) => ({ type: types[(at + size) % types.length]!, length }))
  const largeTypes = size <= fewRanks ? types : ['float32']
  const length = ofAllRanks.has(call) ? Math.ceil(large / size) : large
  return [...small, ...largeTypes.map((type) => ({ type, length }))]
}
export const lengthsText = `0, 1, N-1, N, N+1, ${prime} and ${large} elements (the last number in all N arrays together where a function takes or gives N; beyond ${fewRanks} ranks of float32 alone)`

/** One call on one rank, with elements of one type. */
interface Cell {
  readonly group: ProcessGroup
  readonly length: number
  readonly type: string
  readonly element: Element
  /** Rank `rank`'s elements: `length` of them, or `count`. */
  of(rank: number, count?: number): ElementArray
  /** What all ranks' elements come to. */
  total(op: ReduceOp, count?: number): ElementArray
  /** errors: where two arrays differ. */
  same(got: ElementArray, expected: ElementArray): void
}

const ranksOf = ({ size }: ProcessGroup) => Array.from({ length: size }, (_, rank) => rank)
/** One of the ranks: another one for another length. */
const rootOf = ({ group, length }: Cell) => (length + 1) % group.size
const empty = ({ element, length }: Cell) => element.make(length)
const lists = (cell: Cell) => ranksOf(cell.group).map(() => empty(cell))
/** Reductions of large arrays are those of small ones. */
const opsFor = ({ length, type }: Cell): ReduceOp[] => (length > prime ? ['sum'] : opsOf(type))

/** By function, what a rank does with arrays. */
const arrayCells: Record<string, (cell: Cell) => Promise<void>> = {
  async allReduce(cell) {
    const { group } = cell
    for (const op of opsFor(cell)) {
      const own = cell.of(group.rank)
      const work = dist.allReduce(own, { group, op, asyncOp: true })
      await work.wait()
      cell.same(own, cell.total(op))
    }
  },
  async reduce(cell) {
    const { group } = cell
    const root = rootOf(cell)
    for (const op of opsFor(cell)) {
      const own = cell.of(group.rank)
      await dist.reduce(own, root, { group, op })
      // To its root a reduction goes round from the rank behind it.
      if (group.rank === root) cell.same(own, totalOf(cell, op, cell.length, { root }))
    }
  },
  async reduceScatter(cell) {
    const { group, length, element } = cell
    for (const op of opsFor(cell)) {
      const all = cell.of(group.rank, length * group.size)
      const inputs = ranksOf(group).map((rank) => all.slice(rank * length, (rank + 1) * length))
      const output = element.make(length)
      await dist.reduceScatter(output, inputs, { group, op })
      const start = group.rank * length
      cell.same(output, cell.total(op, length * group.size).slice(start, start + length))
    }
  },
  async reduceScatterTensor(cell) {
    const { group, length, element } = cell
    for (const op of opsFor(cell)) {
      const output = element.make(length)
      await dist.reduceScatterTensor(output, cell.of(group.rank, length * group.size), {
        group,
        op,
      })
      const start = group.rank * length
      cell.same(output, cell.total(op, length * group.size).slice(start, start + length))
    }
  },
  async broadcast(cell) {
    const { group } = cell
    const own = cell.of(group.rank)
    await dist.broadcast(own, rootOf(cell), { group })
    cell.same(own, cell.of(rootOf(cell)))
  },
  async allGather(cell) {
    const { group } = cell
    const all = lists(cell)
    await dist.allGather(all, cell.of(group.rank), { group })
    for (const [rank, got] of all.entries()) cell.same(got, cell.of(rank))
  },
  async allGatherIntoTensor(cell) {
    const { group, length, element } = cell
    const all = element.make(length * group.size)
    await dist.allGatherIntoTensor(all, cell.of(group.rank), { group })
    for (const rank of ranksOf(group))
      cell.same(all.slice(rank * length, (rank + 1) * length), cell.of(rank))
  },
  async gather(cell) {
    const { group } = cell
    const root = rootOf(cell)
    const all = group.rank === root ? lists(cell) : undefined
    await dist.gather(cell.of(group.rank), all, root, { group })
    for (const [rank, got] of (all ?? []).entries()) cell.same(got, cell.of(rank))
  },
  async scatter(cell) {
    const { group } = cell
    const root = rootOf(cell)
    const own = empty(cell)
    const all = ranksOf(group).map((rank) => cell.of(rank))
    await dist.scatter(own, group.rank === root ? all : undefined, root, { group })
    cell.same(own, cell.of(group.rank))
  },
  async allToAll(cell) {
    const { group, length, element } = cell
    const part = (from: number, to: number) =>
      cell.of(from, length * group.size).slice(to * length, (to + 1) * length)
    const outputs = ranksOf(group).map(() => element.make(length))
    const inputs = ranksOf(group).map((to) => part(group.rank, to))
    await dist.allToAll(outputs, inputs, { group })
    for (const [from, got] of outputs.entries()) cell.same(got, part(from, group.rank))
  },
  async allToAllSingle(cell) {
    const { group, length, element } = cell
    for (const isEven of [true, false]) {
      const ranks = ranksOf(group)
      const countOf = (from: number, to: number) => length + (isEven ? 0 : (3 * from + to) % 2)
      const sumOf = (counts: readonly number[]) => counts.reduce((sum, one) => sum + one, 0)
      const sizes = (from: number) => ranks.map((to) => countOf(from, to))
      const sent = (from: number) => cell.of(from, sumOf(sizes(from)))
      const taken = ranks.map((from) => countOf(from, group.rank))
      const output = element.make(sumOf(taken))
      const splits = isEven ? [] : [taken, sizes(group.rank)]
      await dist.allToAllSingle(output, sent(group.rank), splits[0], splits[1], { group })
      let at = 0
      for (const from of ranks) {
        const begin = sumOf(sizes(from).slice(0, group.rank))
        const part = sent(from).slice(begin, begin + taken[from]!)
        cell.same(output.slice(at, at + part.length), part)
        at += part.length
      }
    }
  },
  async 'send, recv'(cell) {
    const { group } = cell
    const others = ranksOf(group).filter((rank) => rank !== group.rank)
    for (const other of others) {
      const taken = empty(cell)
      const send = () => dist.send(cell.of(group.rank), other, { group })
      const receive = () => dist.recv(taken, other, { group })
      for (const step of group.rank < other ? [send, receive] : [receive, send]) await step()
      cell.same(taken, cell.of(other))
    }
  },
  async 'isend, irecv'(cell) {
    const { group } = cell
    const others = ranksOf(group).filter((rank) => rank !== group.rank)
    const taken = others.map(() => empty(cell))
    const works = others.flatMap((other, at) => [
      dist.irecv(taken[at]!, other, { group, tag: 7 }),
      dist.isend(cell.of(group.rank), other, { group, tag: 7 }),
    ])
    for (const work of works) await work.wait()
    for (const [at, other] of others.entries()) cell.same(taken[at]!, cell.of(other))
  },
  async batchIsendIrecv(cell) {
    const { group } = cell
    const others = ranksOf(group).filter((rank) => rank !== group.rank)
    if (others.length === 0) return
    const taken = others.map(() => empty(cell))
    const given = { group, tag: 8 }
    const works = dist.batchIsendIrecv(
      others.flatMap((other, at) => [
        new dist.P2POp(dist.isend, cell.of(group.rank), other, given),
        new dist.P2POp(dist.irecv, taken[at]!, other, given),
      ]),
    )
    for (const work of works) await work.wait()
    for (const [at, other] of others.entries()) cell.same(taken[at]!, cell.of(other))
  },
}

/** Of another length for each rank. */
const objectOf = (rank: number) => ({ rank, text: 'a'.repeat(100 * rank), when: new Date(rank) })

function expectEqual(got: unknown, expected: unknown): void {
  const [a, b] = [got, expected].map((value) => JSON.stringify(value))
  if (a !== b) throw new Error(`expected ${b}, got ${a}`)
}

/** By so much the last rank comes later than the others, and so much two pages' clocks may differ. units: ms. */
const lateMs = 40
const clockMs = 5

/** Nobody leaves before the last one has come, who is late. */
async function holdsAll(group: ProcessGroup, barrier: () => Promise<void>): Promise<void> {
  const now = () => performance.timeOrigin + performance.now()
  if (group.rank === group.size - 1) await new Promise((resolve) => setTimeout(resolve, lateMs))
  const cameMs = now()
  await barrier()
  const leftMs = now()
  const all = ranksOf(group).map(() => ({ cameMs, leftMs }))
  await dist.allGatherObject(all, { cameMs, leftMs }, { group })
  const lastMs = Math.max(...all.map((one) => one.cameMs))
  const first = all.findIndex((one) => one.leftMs < lastMs - clockMs)
  if (first >= 0) throw new Error(`rank ${first} left before the last one had come`)
}

/** By function, what a rank does without arrays. */
const plainCells: Record<string, (group: ProcessGroup) => Promise<void>> = {
  barrier: (group) => holdsAll(group, () => dist.barrier({ group })),
  monitoredBarrier: (group) => holdsAll(group, () => dist.monitoredBarrier({ group })),
  async allGatherObject(group) {
    const all = ranksOf(group).map((): unknown => undefined)
    await dist.allGatherObject(all, objectOf(group.rank), { group })
    expectEqual(all, ranksOf(group).map(objectOf))
  },
  async gatherObject(group) {
    const root = group.size - 1
    const list = group.rank === root ? ranksOf(group).map((): unknown => undefined) : undefined
    await dist.gatherObject(objectOf(group.rank) as unknown, list, root, { group })
    expectEqual(list, group.rank === root ? ranksOf(group).map(objectOf) : undefined)
  },
  async broadcastObjectList(group) {
    const list = [objectOf(group.rank), group.rank]
    await dist.broadcastObjectList(list, group.size - 1, { group })
    expectEqual(list, [objectOf(group.size - 1), group.size - 1])
  },
  async scatterObjectList(group) {
    const all = group.rank === 0 ? ranksOf(group).map(objectOf) : undefined
    const own: unknown[] = [undefined]
    await dist.scatterObjectList(own, all, 0, { group })
    expectEqual(own[0], objectOf(group.rank))
  },
}

/** Elements that were drawn, and totals: all ranks of one page ask for the same ones. */
const known = new Map<string, ElementArray>()
function once(key: string, make: () => ElementArray): ElementArray {
  const array = known.get(key) ?? make()
  known.set(key, array)
  return array
}

function totalOf(
  { type, element, group, of }: Omit<Cell, 'total' | 'same'>,
  op: ReduceOp,
  count: number,
  { root }: { readonly root?: number } = {},
): ElementArray {
  return once(`${op} ${type} ${group.size} ${count} ${root ?? 'by chunk'}`, () => {
    // A chunk goes round from the rank behind its owner.
    const firstOf = (i: number) => 1 + (root ?? ownerOf(i, count, group.size))
    const inputs = ranksOf(group).map((rank) => of(rank, count))
    const out = element.make(count)
    // A typed array rounds and wraps sums as its type says; float16 has none.
    const isPlain = op === 'sum' && type !== 'float16'
    for (let i = 0; i < count; i++) {
      if (!isPlain) {
        out[i] = reduced(element, inputs, op, firstOf(i), i)
        continue
      }
      const first = firstOf(i)
      for (let hop = 0; hop < group.size; hop++) out[i] += inputs[(first + hop) % group.size]![i]!
    }
    return out
  })
}

function cellOf(group: ProcessGroup, type: string, length: number): Cell {
  const element = elements[type]!
  const of = (rank: number, count = length) =>
    once(`${type} ${rank} ${count}`, () => {
      const random = seededRandom(1000 * rank + count)
      const array = element.make(count)
      for (let i = 0; i < count; i++) array[i] = element.draw(random)
      return array
    }).slice()
  const place = { group, length, type, element, of }
  return {
    ...place,
    total: (op, count = length) => totalOf(place, op, count),
    same(got, expected) {
      const [a, b] = [bytes(got), bytes(expected)]
      if (a.length !== b.length) throw new Error(`expected ${b.length} bytes, got ${a.length}`)
      for (let i = 0; i < a.length; i++)
        if (a[i] !== b[i]) throw new Error(`expected byte ${i} to be ${b[i]}, got ${a[i]}`)
    },
  }
}

/** Whose chunk element `i` is in: the first ranks' have one element more. */
function ownerOf(i: number, length: number, size: number): number {
  const [short, longer] = [Math.floor(length / size), length % size]
  const owner = Math.floor(i / (short + 1))
  return owner < longer ? owner : longer + Math.floor((i - longer * (short + 1)) / short)
}

/** A function and what its arrays hold; none for those without arrays. */
export interface RunCell {
  readonly call: string
  readonly types: readonly string[]
}

/** All functions, with the types that each is run with. */
export const cells: readonly RunCell[] = [
  ...Object.keys(arrayCells).map((call) => ({ call, types: Object.keys(elements) })),
  ...Object.keys(plainCells).map((call) => ({ call, types: [] })),
]

/** Runs all cells on this rank, as the group's other ranks do; returns those that it has run. errors: the first result that is wrong. */
export async function runCells(group: ProcessGroup, set: CellSet = 'pairs'): Promise<RunCell[]> {
  const done: RunCell[] = []
  const attempt = async (what: string, run: () => Promise<void>) => {
    try {
      await run()
    } catch (error) {
      throw new Error(`${what}, rank ${group.rank} of ${group.size}: ${error}`)
    }
  }
  for (const [call, run] of Object.entries(arrayCells)) {
    const types = new Set<string>()
    for (const { type, length } of arraysFor(call, group.size, set)) {
      await attempt(`${call} of ${length} ${type}`, () => run(cellOf(group, type, length)))
      types.add(type)
    }
    done.push({ call, types: Object.keys(elements).filter((type) => types.has(type)) })
  }
  for (const [call, run] of Object.entries(plainCells)) {
    await attempt(call, () => run(group))
    done.push({ call, types: [] })
  }
  return done
}
