const slowest = 0.15
const fastest = 1.5
/** Below and above these a person would see no motion, or none but a blur. units: bytes/s. */
const min = 2 ** 10
const max = 2 ** 30

/** How often a second a dot goes over its arc: by the logarithm of what the link carries, so that a link of twice the rate looks faster. */
export function roundsPerSec(bytesPerSec: number): number {
  const share = Math.log(Math.max(min, bytesPerSec) / min) / Math.log(max / min)
  return slowest + (fastest - slowest) * Math.min(1, share)
}
