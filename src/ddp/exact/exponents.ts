import { shiftOf } from '../../kernels/encode/encode.ts'

/** Where nothing has been measured yet: gradients up to 2^8 fit, and the step is done again by what they are. */
export const startExponent = 8
/** A sum whose marks reach this may not fit into 32 bits. */
const maxMarks = 2 ** 23
/** While measuring, a block that did not fit rises by so much more; what then fits can still be measured. */
const leap = 12
/** Blocks are held within this many bits of the largest: nearly zero ones wake up all at once. */
const deepest = 12

/** Tells whether a block has gradients that are not finite. Where others of it do not fit either, a later attempt says so. */
export const isNotFinite = (mark: number): boolean => mark < 0

/** Tells whether a block's sums may not fit, or are not finite. */
export const isUnfit = (mark: number): boolean => mark >= maxMarks || isNotFinite(mark)

/** Findings from a step's marks. */
export interface Judged {
  /** The exponents of the next step, or of this step's next attempt. */
  readonly exponents: Int32Array<ArrayBuffer>
  /** Some sums may not have fit: the step is done again. */
  readonly isSaturated: boolean
  /** No block is known to have gradients that are not finite. */
  readonly areFinite: boolean
}

/**
 * Judges the marks of all blocks, which are equal on all ranks, so that all judge the same.
 *
 * An exponent e says that the magnitudes of a block's gradients, summed over the virtual workers, were at most 2^e. It rises at once, and
 * falls by one bit a step, so that a block that is quiet for a step keeps its room. `isMeasuring`: the exponents were a guess, and fall at once.
 */
export function judge(marks: Int32Array, exponents: Int32Array, isMeasuring = false): Judged {
  const next = new Int32Array(exponents.length)
  let isSaturated = false
  let areFinite = true
  let largest = -Infinity
  for (let block = 0; block < marks.length; block++) {
    const [mark, exponent] = [marks[block], exponents[block]]
    if (isUnfit(mark)) isSaturated = true
    if (isNotFinite(mark)) areFinite = false
    // mark 2^8 bounds the sum of magnitudes after the shift.
    const bound = 32 - Math.clz32(Math.max(1, mark) - 1) + 8 - shiftOf(exponent)
    next[block] = isMeasuring ? bound + (isUnfit(mark) ? leap : 0) : Math.max(bound, exponent - 1)
    largest = Math.max(largest, next[block])
  }
  const lowest = Math.max(largest - deepest, -99)
  for (let block = 0; block < next.length; block++)
    next[block] = Math.min(126, Math.max(next[block], lowest))
  return { exponents: next, isSaturated, areFinite }
}
