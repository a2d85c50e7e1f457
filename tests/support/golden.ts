import { expect } from 'vitest'
import type { HostArray } from '../../src/kernels/op.ts'
import type { DType, TensorType } from '../../src/util/shape.ts'

/** A tensor of a file in tests/golden: base64 of its little-endian elements. */
export interface GoldenTensor {
  readonly shape: number[]
  readonly dtype: DType | 'f64'
  readonly data: string
}

/** A float64 result, and how far PyTorch's own float32 result is from it at most. */
export interface GoldenResult extends GoldenTensor {
  readonly distance: number
}

/** A case of a file in tests/golden: inputs and PyTorch's results by name. */
export interface GoldenCase {
  readonly name: string
  readonly inputs: Record<string, GoldenTensor>
  readonly outputs: Record<string, GoldenResult>
}

export const typeOf = ({ shape, dtype }: GoldenTensor): TensorType => ({
  shape,
  dtype: dtype === 'f64' ? 'f32' : dtype,
})

/** The elements; floats as f64. */
export function valuesOf({ dtype, data }: GoldenTensor): HostArray {
  const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0))
  if (dtype === 'f64') return new Float64Array(bytes.buffer)
  if (dtype === 'f32') return Float64Array.from(new Float32Array(bytes.buffer))
  return dtype === 'i32' ? new Int32Array(bytes.buffer) : new Uint32Array(bytes.buffer)
}

/**
 * The largest distance from PyTorch's float64 result that passes: 8 times that of PyTorch's float32 result. An H100 comes to 7.4 (a running mean after 50 steps).
 *
 * One rounding of the tensor's largest element counts as a distance at least, since PyTorch's may be nil by luck.
 */
export function allowedDistance(distance: number, expected: ArrayLike<number>): number {
  let largest = 0
  for (let i = 0; i < expected.length; i++) largest = Math.max(largest, Math.abs(expected[i]))
  return 8 * Math.max(distance, largest * 2 ** -24)
}

/** The largest |got - expected|; NaN where either is NaN or the lengths differ. */
export function largestDistance(got: ArrayLike<number>, expected: ArrayLike<number>): number {
  if (got.length !== expected.length) return Number.NaN
  let largest = 0
  for (let i = 0; i < got.length; i++) {
    const distance = Math.abs(got[i] - expected[i])
    // Math.max keeps NaN.
    largest = Math.max(largest, distance)
  }
  return largest
}

/** Fails where a result is farther from PyTorch's float64 than allowed. `outputs`: a GoldenResult for each name. */
export function expectGolden(
  got: Readonly<Record<string, ArrayLike<number>>>,
  outputs: object,
): void {
  for (const [name, result] of Object.entries(outputs) as [string, GoldenResult][]) {
    const expected = valuesOf(result)
    expect(largestDistance(got[name], expected), name).toBeLessThanOrEqual(
      allowedDistance(result.distance, expected),
    )
  }
}
