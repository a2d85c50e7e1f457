import { blockElements, shiftOf } from '../../kernels/encode/encode.ts'

/** The sums of a parameter's gradients as whole numbers, and the exponents of its blocks. */
export interface EncodedSums {
  readonly sums: Int32Array
  readonly exponents: Int32Array
}

/**
 * Returns the divisor of the sums of all gradients, so that their mean has at most the norm `maxNorm`: `count`, or more where that clips.
 *
 * numerics: count / min(1, maxNorm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_, rounded to float32. The norm is of the whole numbers,
 * in float64, in the order of the parameters, so it is the same bits on all ranks.
 */
export function clipDivisor(
  gradients: readonly EncodedSums[],
  count: number,
  maxNorm: number,
): number {
  let squares = 0
  for (const { sums, exponents } of gradients) {
    for (const [block, exponent] of exponents.entries()) {
      let own = 0
      const end = Math.min(sums.length, (block + 1) * blockElements)
      for (let i = block * blockElements; i < end; i++) own += sums[i] * sums[i]
      squares += own * 4 ** -shiftOf(exponent)
    }
  }
  const norm = Math.sqrt(squares) / count
  return Math.fround(count / Math.min(1, maxNorm / (norm + 1e-6)))
}
