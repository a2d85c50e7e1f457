import type { ElementArray, ReduceOp } from '../../src/peer/collective/element.ts'
import { Float16Bits } from '../../src/peer/collective/float16-bits.ts'
import { halfBits, halfValue } from '../../src/util/half.ts'
import { seededRandom } from '../../src/util/virtual-env.ts'

/** What collectives come to, by plain loops over all ranks' inputs. */

export interface Element {
  make: (length: number) => ElementArray
  /** A number that the type holds. */
  draw: (random: () => number) => number
  /** `a op b` in the type, by the values that its words mean. */
  value: (word: number) => number
  /** Without rounding, but for whole numbers: beyond 2^53 a double would lose the digits that stay. */
  product?: (a: number, b: number) => number
  word: (value: number) => number
  /** An average divides each rank's part, and not the sum. */
  dividesFirst?: true
}

const same = (x: number) => x
const wrapping = (a: number, b: number) => Number(BigInt.asIntN(32, BigInt(a) * BigInt(b)))
export const elements: Record<string, Element> = {
  float32: {
    make: (length) => new Float32Array(length),
    draw: (random) => Math.fround((random() - 0.5) * 10 ** Math.floor(random() * 6)),
    value: same,
    word: Math.fround,
  },
  float16: {
    make: (length) => new Float16Bits(length),
    draw: (random) => halfBits((random() - 0.5) * 10),
    value: halfValue,
    word: halfBits,
    dividesFirst: true,
  },
  int32: {
    make: (length) => new Int32Array(length),
    draw: (random) => Math.floor((random() - 0.5) * 2 ** 32),
    value: same,
    product: wrapping,
    word: same,
  },
  uint32: {
    make: (length) => new Uint32Array(length),
    draw: (random) => Math.floor(random() * 2 ** 32),
    value: same,
    product: wrapping,
    word: same,
  },
  uint8: {
    make: (length) => new Uint8Array(length),
    draw: (random) => Math.floor(random() * 256),
    value: same,
    product: wrapping,
    word: same,
  },
}

/** An array of drawn numbers for each of `size` ranks. */
export function drawnOnRanks(
  element: Element,
  size: number,
  length: number,
  seed: number,
): ElementArray[] {
  const random = seededRandom(seed)
  return Array.from({ length: size }, () => {
    const array = element.make(length)
    for (let i = 0; i < length; i++) array[i] = element.draw(random)
    return array
  })
}

function combine({ product }: Element, op: ReduceOp, a: number, b: number): number {
  if (op === 'min') return Math.min(a, b)
  if (op === 'max') return Math.max(a, b)
  if (op === 'product') return product ? product(a, b) : a * b
  return a + b
}

/** What element `i` becomes when the ranks from `first` on combine theirs, one after the other. */
export function reduced(
  element: Element,
  inputs: readonly ElementArray[],
  op: ReduceOp,
  first: number,
  i: number,
): number {
  const { value, word, make, dividesFirst } = element
  const size = inputs.length
  const cell = make(1)
  const part = (rank: number) => {
    const own = inputs[rank % size]![i]!
    return op === 'avg' && dividesFirst ? word(value(own) / size) : own
  }
  cell[0] = part(first)
  for (let hop = 1; hop < size; hop++)
    cell[0] = word(combine(element, op, value(cell[0]!), value(part(first + hop))))
  if (op === 'avg' && !dividesFirst) cell[0] = word(value(cell[0]!) / size)
  return cell[0]!
}

/** What element `i` becomes at `owner` when each machine is summed first: other machines in the order in which they occur, then its own ranks. */
export function reducedByMachines(
  element: Element,
  inputs: readonly ElementArray[],
  op: ReduceOp,
  machines: readonly number[],
  owner: number,
  i: number,
): number {
  const { value, word, make, dividesFirst } = element
  const cell = make(2)
  const partOf = (rank: number) => {
    const own = inputs[rank]![i]!
    return op === 'avg' && dividesFirst ? word(value(own) / machines.length) : own
  }
  const fold = (values: readonly number[]): number => {
    cell[0] = values[0]!
    for (const one of values.slice(1)) {
      cell[1] = one
      cell[0] = word(combine(element, op, value(cell[0]!), value(cell[1]!)))
    }
    return cell[0]!
  }
  const parts = partsByMachine(machines, owner).map((ranks) => fold(ranks.map(partOf)))
  const total = fold(parts)
  if (op === 'avg' && !dividesFirst) cell[0] = word(value(total) / machines.length)
  return cell[0]!
}

/** The ranks whose sums, one by one, make an owner's chunk: whole machines, then its own ranks alone. */
export function partsByMachine(machines: readonly number[], owner: number): number[][] {
  const size = machines.length
  const others = new Map<number, number[]>()
  const own: number[][] = []
  for (let hop = 1; hop <= size; hop++) {
    const rank = (owner + hop) % size
    const machine = machines[rank]!
    if (machine === machines[owner]) own.push([rank])
    else others.set(machine, [...(others.get(machine) ?? []), rank])
  }
  return [...others.values(), ...own]
}

/** Who shares a machine: several ways for `size` ranks. */
export function layoutsOf(size: number): number[][] {
  const by = (machine: (rank: number) => number) =>
    Array.from({ length: size }, (_, rank) => machine(rank))
  const all = [
    by((rank) => Number(2 * rank >= size)),
    by((rank) => rank % 2),
    by((rank) => Math.floor(rank / 3)),
    by((rank) => Number(rank === 1)),
    by((rank) => (rank * rank) % 4),
    by(() => 0),
    by((rank) => rank),
  ]
  return [...new Map(all.map((layout) => [layout.join(), layout])).values()]
}

/** Bit for bit: a NaN equals itself, and 0 is not -0. */
export const bytes = (array: ElementArray) =>
  new Uint8Array(array.buffer as ArrayBuffer, array.byteOffset, array.byteLength)

export const opsOf = (name: string): ReduceOp[] =>
  name.startsWith('float')
    ? ['sum', 'avg', 'min', 'max', 'product']
    : ['sum', 'min', 'max', 'product']
