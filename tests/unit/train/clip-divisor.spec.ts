import { expect, test } from 'vitest'
import { clipDivisor } from '../../../src/ddp/exact/clip-divisor.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import { shiftOf } from '../../../src/kernels/encode/encode.ts'
import { ExactOptimizer } from '../../../src/optim/exact/exact-optimizer.ts'
import golden from '../../golden/optim.json'
import {
  allowedDistance,
  type GoldenTensor,
  largestDistance,
  valuesOf,
} from '../../support/golden.ts'

const count = 3
const names = ['a', 'b'] as const

test.each([
  ['norm 2', 1],
  ['norm 2, often below', 6],
])('an exact update clips by %s as PyTorch does', async (name, max) => {
  const found = golden.clips.find((one) => one.name === name)!
  const parameters = names.map((key) => {
    const { shape } = golden.start[key]
    return new Parameter(shape, Float32Array.from(valuesOf(golden.start[key] as GoldenTensor)))
  })
  const optimizer = new ExactOptimizer(parameters, { kind: 'sgd', lr: 0.1, momentum: 0.9 })
  const values = await optimizer.read()
  // Gradients up to 4, three times.
  const exponents = Int32Array.of(4)
  const all = names.map((key) => valuesOf(golden.gradients[key] as GoldenTensor))
  let clipped = 0
  for (let step = 0; step < found.notes.length; step++) {
    const gradients = parameters.map(({ count: length }, i) => {
      const own = all[i].slice(step * length, (step + 1) * length)
      const sums = Int32Array.from(own, (value) => Math.round(value * count * 2 ** shiftOf(4)))
      return { sums, exponents }
    })
    const divisor = clipDivisor(gradients, count, max)
    const isOver = found.notes[step] > max
    expect(divisor > count).toBe(isOver)
    if (isOver) clipped++
    optimizer.begin()
    for (const [i, own] of gradients.entries()) optimizer.update(i, own.sums, exponents, divisor)
    const at = golden.at.indexOf(step + 1)
    if (at < 0) continue
    for (const [i, key] of names.entries()) {
      const { data, distance, ...rest } = found.checkpoints[key]
      const expected = valuesOf({ data, ...rest } as GoldenTensor)
      const { length } = values[i]
      const wanted = expected.slice(at * length, (at + 1) * length)
      expect(largestDistance(values[i], wanted)).toBeLessThan(allowedDistance(distance, expected))
    }
  }
  expect(clipped).toBeGreaterThan(0)
  if (max > 1) expect(clipped).toBeLessThan(found.notes.length)
})
