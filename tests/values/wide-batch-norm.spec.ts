import { expect, test } from 'vitest'
import { compile } from '../../src/graph/compile/compile.ts'
import { batchNorm } from '../../src/graph/functions/batch-norm.ts'
import { Parameter } from '../../src/graph/trace/parameter.ts'
import { tensorType } from '../../src/util/shape.ts'
import { largestDistance } from '../support/golden.ts'
import { testRuntime } from '../support/run-op.ts'

test('batch normalization gives results and gradients when channels are more than 65,535', async () => {
  const channels = 70_001
  const values = Float32Array.from({ length: 3 * channels }, (_, i) => {
    const [n, c] = [Math.floor(i / channels), i % channels]
    return n * (1 + (c % 5)) + Math.sin(c)
  })
  const weight = new Parameter([channels], new Float32Array(channels).fill(2))
  const bias = new Parameter([channels], new Float32Array(channels))
  const program = await compile(
    ({ x }) => {
      const y = batchNorm(x, weight, bias, { training: true })
      y.mul(x).sum().backward()
      return { y, dw: weight.grad!, db: bias.grad! }
    },
    { x: tensorType([3, channels]) },
    { runtime: await testRuntime() },
  )
  const got = await program.run({ x: values })
  program.destroy()
  const expected = {
    y: new Float64Array(3 * channels),
    dw: new Float64Array(channels),
    db: new Float64Array(channels),
  }
  for (let c = 0; c < channels; c++) {
    const column = [0, 1, 2].map((n) => values[n * channels + c])
    const mean = (column[0] + column[1] + column[2]) / 3
    const variance = column.reduce((sum, value) => sum + (value - mean) ** 2, 0) / 3
    column.forEach((value, n) => {
      const normal = (value - mean) / Math.sqrt(variance + 1e-5)
      expected.y[n * channels + c] = 2 * normal
      expected.dw[c] += normal * value
      expected.db[c] += value
    })
  }
  for (const name of ['y', 'dw', 'db'] as const)
    expect.soft(largestDistance(got[name], expected[name]), name).toBeLessThan(2e-5)
})
