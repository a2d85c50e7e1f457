import type { LinkMeasurement } from '../../peer/measure-links.ts'

/** Sizes that a measured bucket may have: each 4 times the one before, so that rates that differ a little come to the same one. */
const sizesKib = [64, 256, 1024, 4096]
/** How long a bucket is on the wire, at best: long enough that frames cost little, short enough that the next one can overlap it. units: ms. */
const targetMs = 32

/**
 * The size of buckets for links that take `bytesPerMs`: of 1/16, 1/4, 1 and 4 MiB the one that takes 16 to 64 ms, or else the nearest.
 *
 * A size changes where the rate passes 2, 8 or 32 times 1/16 MiB in 32 ms; two measurements on the same side of these give one size.
 */
export function bucketCapMbFor({ bytesPerMs }: Pick<LinkMeasurement, 'bytesPerMs'>): number {
  const aimedKib = ((bytesPerMs ?? Number.POSITIVE_INFINITY) * targetMs) / 1024
  const kib = sizesKib.find((size) => aimedKib <= 2 * size) ?? sizesKib[sizesKib.length - 1]
  return kib / 1024
}
