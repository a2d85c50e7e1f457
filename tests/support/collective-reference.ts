import type { ElementArray, ReduceOp } from '../../src/peer/element.ts'
import { halfBits, halfValue } from '../../src/util/half.ts'

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
    make: (length) => new Uint16Array(length),
    draw: (random) => halfBits((random() - 0.5) * 10),
    value: halfValue,
    word: halfBits,
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
  const { value, word, make } = element
  const size = inputs.length
  const cell = make(1)
  cell[0] = inputs[first % size]![i]!
  for (let hop = 1; hop < size; hop++)
    cell[0] = word(combine(element, op, value(cell[0]!), value(inputs[(first + hop) % size]![i]!)))
  if (op === 'avg') cell[0] = word(value(cell[0]!) / size)
  return cell[0]!
}

/** Bit for bit: a NaN equals itself, and 0 is not -0. */
export const bytes = (array: ElementArray) =>
  new Uint8Array(array.buffer as ArrayBuffer, array.byteOffset, array.byteLength)

export const opsOf = (name: string): ReduceOp[] =>
  name.startsWith('float')
    ? ['sum', 'avg', 'min', 'max', 'product']
    : ['sum', 'min', 'max', 'product']
