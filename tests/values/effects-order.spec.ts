import { expect, test } from 'vitest'
import { compile } from '../../src/graph/compile/compile.ts'
import { ReferenceRuntime } from '../../src/graph/memory/runtime.ts'
import { BatchNorm1d } from '../../src/nn/batch-norm.ts'
import { tensorType } from '../../src/util/shape.ts'
import { testRuntime } from '../support/run-op.ts'

// What changes in place and what reads it keep their order, whatever the rewrites join.

test('evaluating and then training a module in one function reads the statistics before they move', async () => {
  const x = Float32Array.from({ length: 24 }, (_, i) => Math.sin(i) + 2)
  const results = []
  for (const runtime of [new ReferenceRuntime(), await testRuntime()]) {
    const layer = new BatchNorm1d(4)
    const program = await compile(
      (given) => {
        layer.eval()
        const before = layer.forward(given.x)
        layer.train()
        const trained = layer.forward(given.x)
        // The first result is used after the second is made.
        return { y: before.mul(2).add(trained) }
      },
      { x: tensorType([6, 4]) },
      { runtime },
    )
    results.push([await program.run({ x }), await program.run({ x })])
    program.destroy()
  }
  const [host, device] = results
  for (const run of [0, 1]) {
    const wanted = host[run].y
    device[run].y.forEach((value, i) => {
      expect(value, `run ${run} [${i}]`).toBeCloseTo(wanted[i], 4)
    })
  }
  expect(host[1].y).not.toEqual(host[0].y)
})

test('a sum of a chain over running statistics reads them before they move', async () => {
  const x = Float32Array.from({ length: 24 }, (_, i) => Math.sin(i) + 2)
  const results = []
  for (const runtime of [new ReferenceRuntime(), await testRuntime()]) {
    const layer = new BatchNorm1d(4)
    const program = await compile(
      (given) => {
        const before = layer.runningMean!.mul(2).add(1)
        const total = layer.runningVar!.sum()
        const y = layer.forward(given.x)
        return { y, before: before.sum(), total: total.mul(3) }
      },
      { x: tensorType([6, 4]) },
      { runtime },
    )
    results.push([await program.run({ x }), await program.run({ x })])
    program.destroy()
  }
  const [host, device] = results
  for (const run of [0, 1]) {
    for (const name of ['before', 'total'] as const) {
      expect(device[run][name][0], `run ${run} ${name}`).toBeCloseTo(host[run][name][0], 4)
    }
  }
  // As initialised: means of 0, variances of 1.
  expect([device[0].before[0], device[0].total[0]]).toEqual([4, 12])
})
