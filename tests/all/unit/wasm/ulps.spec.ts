import { expect, test } from 'vitest'
import { worstUlps } from '../../../support/ulps.ts'

const chunk = 500_000
/** Every 257th float32. */
const stride = 257
const bits = Uint32Array.from({ length: chunk }, (_, i) => stride * i)

// The bounds are those of docs/how-it-works/devices.md.
test.each([
  ['sqrt', 0.5],
  ['log', 0.82],
  ['exp', 0.98],
  ['tanh', 1.5],
  ['rsqrt', 1.5],
  ['erf', 1.7],
  ['sigmoid', 1.75],
  ['softplus', 1.95],
  ['silu', 2.65],
] as const)(
  '%s is within %d units of the last place at every 257th float32 on the device cpu',
  (fn, bound) => {
    let worst = 0
    // Below -87 the sigmoid in silu has lost digits.
    const holds = (x: number) => fn !== 'silu' || x > -87
    for (let first = 0; first < 2 ** 32; first += stride * chunk) {
      const inputs = new Float32Array(bits.map((word) => first + word).buffer)
      worst = Math.max(worst, worstUlps(fn, inputs, holds))
    }
    expect(worst).toBeLessThanOrEqual(bound)
    expect(worst).toBeGreaterThan(bound - 0.1)
  },
  120_000,
)
