const slowest = 0.15
const fastest = 1.5
/** Below and above these a person would see no motion, or none but a blur. units: bytes/s. */
const least = 2 ** 10
const most = 2 ** 30

/** How often a second a dot goes over its arc: by the logarithm of what the link carries, so that a link of twice the rate looks faster. */
export function roundsPerSec(bytesPerSec: number): number {
  const share = Math.log(Math.max(least, bytesPerSec) / least) / Math.log(most / least)
  return slowest + (fastest - slowest) * Math.min(1, share)
}
