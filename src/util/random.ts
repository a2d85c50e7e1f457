import { TabringError } from './errors.ts'
import { quoted } from './kind-of.ts'

/**
 * Seeded randomness from a counter: the n-th number of a stream is a pure function of (seed, purpose, stream, n).
 *
 * Nothing has state that must be carried along, so every rank can make any part of any stream alone, in any
 * order, and gets the same bits in Node and in every browser: only 32-bit integer operations and exact float
 * scaling are used.
 *
 * source: Philox4x32-10, Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
 *
 * Parts: the block cipher (philox4x32), a cursor over one stream (RandomStream), and the two bulk forms that the
 * rest of Tabring uses (uniform, permutation).
 */

const multiplier0 = 0xd2511f53
const multiplier1 = 0xcd9e8d57
const weyl0 = 0x9e3779b9
const weyl1 = 0xbb67ae85
const rounds = 10

/** High 32 bits of the 64-bit product of two unsigned 32-bit numbers. */
function multiplyHigh(a: number, b: number): number {
  const aLow = a & 0xffff
  const aHigh = a >>> 16
  const bLow = b & 0xffff
  const bHigh = b >>> 16
  const middle = aHigh * bLow + ((aLow * bLow) >>> 16)
  const carry = aLow * bHigh + (middle & 0xffff)
  return (aHigh * bHigh + (middle >>> 16) + (carry >>> 16)) >>> 0
}

/**
 * Writes Philox4x32-10 of the counter (c0, c1, c2, c3) under the key (k0, k1) to `out`.
 *
 * shape: `out` takes 4 unsigned 32-bit words at `offset`.
 * source: constants and round function of the paper's reference implementation (Random123).
 */
export function philox4x32(
  c0: number,
  c1: number,
  c2: number,
  c3: number,
  k0: number,
  k1: number,
  out: Uint32Array,
  offset = 0,
): void {
  let x0 = c0
  let x1 = c1
  let x2 = c2
  let x3 = c3
  let key0 = k0
  let key1 = k1
  for (let round = 0; round < rounds; round++) {
    const high0 = multiplyHigh(multiplier0, x0)
    const low0 = Math.imul(multiplier0, x0)
    const high1 = multiplyHigh(multiplier1, x2)
    const low1 = Math.imul(multiplier1, x2)
    x0 = (high1 ^ x1 ^ key0) >>> 0
    x1 = low1 >>> 0
    x2 = (high0 ^ x3 ^ key1) >>> 0
    x3 = low0 >>> 0
    key0 = (key0 + weyl0) >>> 0
    key1 = (key1 + weyl1) >>> 0
  }
  out[offset] = x0
  out[offset + 1] = x1
  out[offset + 2] = x2
  out[offset + 3] = x3
}

/**
 * What a stream is for. Two purposes never share a number, whatever their seeds and streams are.
 * Append only: changing a value changes every run's bits.
 */
export const purposes = { general: 0, permutation: 1, digits: 2, dropout: 3, augment: 4 } as const

export type Purpose = keyof typeof purposes

function requireWord(where: string, value: number): void {
  if (!Number.isInteger(value) || value < 0 || value > 0xffffffff)
    throw new TabringError(
      'config.invalid',
      `random: ${where} must be an integer from 0 to 4294967295, got ${quoted(value)}. Choose one in that range.`,
    )
}

/** The Philox key of a seed. errors: `config.invalid` when the seed is no safe integer of 0 or more. */
export function keyOfSeed(seed: number): [low: number, high: number] {
  if (!Number.isSafeInteger(seed) || seed < 0)
    throw new TabringError(
      'config.invalid',
      `random: seed must be an integer from 0 to 2^53-1, got ${quoted(seed)}. Choose one in that range.`,
    )
  return [seed >>> 0, Math.floor(seed / 0x100000000)]
}

/**
 * A cursor over the random stream (seed, purpose, stream), or over page `page` of it where a use needs two numbers as its key.
 *
 * Counter layout: words 0 and 1 are the block number (pages are 2^32 blocks apart), word 2 the stream, word 3 the purpose.
 */
export class RandomStream {
  readonly #key: [number, number]
  readonly #stream: number
  readonly #purpose: number
  readonly #page: number
  readonly #block = new Uint32Array(4)
  #blockIndex = 0
  #next = 4

  constructor(seed: number, stream: number, purpose: Purpose = 'general', page = 0) {
    requireWord('stream', stream)
    requireWord('page', page)
    this.#page = page
    this.#key = keyOfSeed(seed)
    this.#stream = stream
    this.#purpose = purposes[purpose]
  }

  /** Returns the next unsigned 32-bit word. */
  word(): number {
    if (this.#next === 4) {
      const low = this.#blockIndex >>> 0
      const high = this.#page + Math.floor(this.#blockIndex / 0x100000000)
      const [k0, k1] = this.#key
      philox4x32(low, high, this.#stream, this.#purpose, k0, k1, this.#block)
      this.#blockIndex++
      this.#next = 0
    }
    return this.#block[this.#next++]
  }

  /** Returns the next number in [0, 1): a multiple of 2^-24, so float32 represents it exactly. */
  unit(): number {
    return (this.word() >>> 8) * 2 ** -24
  }

  /** Returns the next number in [low, high), in float64. */
  between(low: number, high: number): number {
    return low + (high - low) * this.unit()
  }

  /** Returns the next integer in [0, bound), without bias: words beyond the last whole multiple of `bound` are skipped. */
  below(bound: number): number {
    const limit = 0x100000000 - (0x100000000 % bound)
    let word = this.word()
    while (word >= limit) word = this.word()
    return word % bound
  }
}

/**
 * Returns `count` numbers, evenly distributed from `low` to `high`, of the stream (seed, stream).
 *
 * shape: [count]. `high` itself can occur only through rounding to float32. A longer call begins with the numbers
 * of a shorter one.
 * errors: `config.invalid` when seed, stream or count are no integers in range.
 */
export function uniform(
  seed: number,
  stream: number,
  count: number,
  low = 0,
  high = 1,
): Float32Array<ArrayBuffer> {
  const values = new Float32Array(count)
  const source = new RandomStream(seed, stream)
  for (let i = 0; i < count; i++) values[i] = source.between(low, high)
  return values
}

/**
 * Returns the numbers 0 to n-1 in an order that (seed, epoch) decides, every order equally likely.
 *
 * shape: [n].
 * errors: `config.invalid` when seed or epoch are no integers in range.
 * source: Fisher and Yates's shuffle in Durstenfeld's form.
 */
export function permutation(seed: number, epoch: number, n: number): Uint32Array<ArrayBuffer> {
  const order = new Uint32Array(n)
  for (let i = 0; i < n; i++) order[i] = i
  const source = new RandomStream(seed, epoch, 'permutation')
  for (let last = n - 1; last > 0; last--) {
    const chosen = source.below(last + 1)
    const value = order[last]
    order[last] = order[chosen]
    order[chosen] = value
  }
  return order
}
