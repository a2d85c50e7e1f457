import { expect, test } from 'vitest'
import type { ScalarFunctionName } from '../../../../src/kernels/steps.ts'
import { worstUlps } from '../../../support/ulps.ts'

/** The number whose last place is the unit. */
type UnitAt = (x: number, exact: number) => number

const ofResult: UnitAt = (_, exact) => exact
const ofOneOrX: UnitAt = (x) => Math.max(1, Math.abs(x))

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
  ['silu', 1.95],
  ['bceLogits', 1.95],
] as const)(
  '%s is within %d units of the last place at every 257th float32 on the device cpu',
  (fn, bound) => expectWorst(fn, bound, ofResult),
  120_000,
)

// These pass 0, or cancel, where no float32 before them has the digits.
test.each([
  ['gelu', 1.35],
  ['geluTanh', 1.2],
  ['geluGrad', 1.3],
  ['geluTanhGrad', 1.25],
  ['siluGrad', 1.6],
] as const)(
  '%s is within %d units of the last place of 1 or x at every 257th float32 on the device cpu',
  (fn, bound) => expectWorst(fn, bound, ofOneOrX),
  120_000,
)

function expectWorst(fn: ScalarFunctionName, bound: number, unitAt: UnitAt): void {
  let worst = 0
  for (let first = 0; first < 2 ** 32; first += stride * chunk) {
    const inputs = new Float32Array(bits.map((word) => first + word).buffer)
    worst = Math.max(worst, worstUlps(fn, inputs, undefined, unitAt))
  }
  expect(worst).toBeLessThanOrEqual(bound)
  expect(worst).toBeGreaterThan(bound - 0.1)
}
