import { afterEach, expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { testRuntime } from '../../support/run-op.ts'

afterEach(async () => (await testRuntime()).gpu.check())

test('a run that takes the device long is cut into submits, timed runs too, and its parts still have times', async () => {
  const runtime = await testRuntime()
  const { counters, facts } = runtime.gpu
  expect(facts.hasTimestamps).toBe(true)
  const size = 1024
  const program = await compile(
    ({ x }) => {
      let y = x
      for (let i = 0; i < 6; i++) y = y.matmul(x)
      return { sum: y.sum() }
    },
    { x: tensorType([size, size]) },
    { runtime },
  )
  const x = new Float32Array(size * size).fill(1 / size)
  const submits: number[] = []
  for (let run = 0; run < 3; run++) {
    const before = counters.submits
    const { sum } = await program.run({ x })
    submits.push(counters.submits - before)
    expect(sum[0]).toBeCloseTo(size, 0)
    expect(program.times.forward).toBeGreaterThan(0)
  }
  program.destroy()
  expect(submits[0]).toBe(1)
  for (const count of submits.slice(1)) expect(count).toBeGreaterThan(1)
}, 240_000)
