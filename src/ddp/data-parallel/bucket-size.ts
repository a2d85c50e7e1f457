import type { LinkMeasurement } from '../../peer/group/measure-links.ts'

/** Sizes that a measured bucket may have: each 4 times the one before, so that rates that differ a little come to the same one. */
const sizesKib = [64, 256, 1024, 4096]
/** How long a bucket is on the wire, at best: long enough that frames cost little, short enough that the next one can overlap it. units: ms. */
const targetMs = 24

/**
 * The size of buckets for links that take `bytesPerMs`: of 1/16, 1/4, 1 and 4 MiB the one that takes 12 to 48 ms, or else the nearest.
 *
 * Sizes change at 5.2, 20.8 and 83.3 MiB/s; two measurements between the same two of these give one size.
 */
export function bucketCapMbFor({ bytesPerMs }: Pick<LinkMeasurement, 'bytesPerMs'>): number {
  const aimedKib = ((bytesPerMs ?? Number.POSITIVE_INFINITY) * targetMs) / 1024
  const kib = sizesKib.find((size) => aimedKib <= 2 * size) ?? sizesKib[sizesKib.length - 1]
  return kib / 1024
}

/** The most that the first bucket has by default: PyTorch's. units: bytes. */
export const maxFirstBytes = 2 ** 20

/** The size of the first bucket where that of the others was measured: small, so that it leaves while little of backward has run. */
export const firstBucketBytesFor = (capBytes: number): number =>
  Math.min(maxFirstBytes, capBytes / 4)
