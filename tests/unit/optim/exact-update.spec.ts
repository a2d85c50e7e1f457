import { createHash } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { adamOnHost, decode, sgdOnHost } from '../../../src/optim/exact/host-update.ts'
import golden from '../../golden/exact-update.json'

/** tests/golden/exact_update.py's formula: float32 numbers of any finite bit pattern. */
function drawn(seed: number, isNonNegative = false): Float32Array<ArrayBuffer> {
  const words = Uint32Array.from({ length: golden.count }, (_, i) => {
    let z = i + seed * golden.count
    z = Math.imul(z ^ (z >>> 16), 0x7feb352d)
    z = Math.imul(z ^ (z >>> 15), 0x846ca68b)
    z = (z ^ (z >>> 16)) >>> 0
    if ((z & 0x7f800000) === 0x7f800000) z &= 0x807fffff
    return isNonNegative ? z & 0x7fffffff : z
  })
  return new Float32Array(words.buffer)
}

function digest(...tensors: Float32Array<ArrayBuffer>[]): string {
  const sha = createHash('sha256')
  for (const tensor of tensors) {
    const words = new Uint32Array(tensor.buffer)
    for (const [i, value] of tensor.entries()) if (Number.isNaN(value)) words[i] = 0x7fc00000
    sha.update(words)
  }
  return sha.digest('hex')
}

const { fround } = Math

describe('updates on the host', () => {
  test("Adam gives the bits of PyTorch's float32 operations, denormals and overflow included", () => {
    const [param, m, v] = [drawn(1), drawn(2), drawn(3, true)]
    const [lr, beta1, beta2, eps, weightDecay] = [1e-3, 0.9, 0.999, 1e-8, 0.01]
    let [power1, power2] = [1, 1]
    for (let step = 0; step < golden.steps; step++) {
      power1 *= beta1
      power2 *= beta2
      adamOnHost(param, drawn(10 + step), m, v, {
        decay: fround(1 - lr * weightDecay),
        beta1: fround(beta1),
        oneMinusBeta1: fround(1 - beta1),
        beta2: fround(beta2),
        oneMinusBeta2: fround(1 - beta2),
        stepSize: fround((lr * Math.sqrt(1 - power2)) / (1 - power1)),
        eps: fround(eps * Math.sqrt(1 - power2)),
      })
    }
    expect(digest(param, m, v)).toBe(golden.adam)
  })

  test("SGD gives the bits of PyTorch's float32 operations", () => {
    const [param, buffer] = [drawn(1), drawn(2)]
    for (let step = 0; step < golden.steps; step++)
      sgdOnHost(param, drawn(10 + step), buffer, { momentum: fround(0.9), lr: fround(0.05) })
    expect(digest(param, buffer)).toBe(golden.sgd)
  })

  test('decode rounds a sum three times: to float32, by the power of two, by the count', () => {
    const sums = Int32Array.of(2 ** 24 + 1, -3, 0, 7)
    const into = new Float32Array(4)
    decode(sums, Int32Array.of(2, 30), 3, 3, into)
    const scales = [2 ** -25, 2 ** -25, 2 ** -25, 2 ** 3]
    const expected = [...sums].map((sum, i) => fround(fround(fround(sum) * scales[i]) / 3))
    expect([...into]).toEqual(expected)
  })
})
