import { afterEach, expect, test } from 'vitest'
import { compile } from '../../src/graph/compile/compile.ts'
import { BatchNorm1d } from '../../src/nn/batch-norm.ts'
import { manualSeed } from '../../src/nn/init.ts'
import { Linear } from '../../src/nn/layers.ts'
import { type Module, Sequential } from '../../src/nn/module.ts'
import { ExponentialMovingAverage } from '../../src/optim/ema.ts'
import { SGD } from '../../src/optim/sgd.ts'
import { tensorType } from '../../src/util/shape.ts'
import { largestDistance } from '../support/golden.ts'
import { testRuntime } from '../support/run-op.ts'

afterEach(async () => (await testRuntime()).gpu.check())

const contents = async (model: Module) =>
  Promise.all([...model.parameters(), ...model.buffers()].map((one) => one.read()))

test('running statistics on the device are averaged and swapped with the parameters', async () => {
  manualSeed(2)
  const model = new Sequential(new Linear(3, 5), new BatchNorm1d(5), new Linear(5, 1))
  const optimizer = new SGD(model.parameters(), { lr: 0.1 })
  const ema = new ExponentialMovingAverage(model, { decay: 0.75, useBuffers: true })
  const step = await compile(
    ({ x }) => {
      model.forward(x).square().mean().backward()
      optimizer.step()
      ema.update()
      return {}
    },
    { x: tensorType([4, 3]) },
    { runtime: await testRuntime() },
  )
  let expected: number[][] = []
  for (let run = 0; run < 4; run++) {
    await step.run({ x: Float32Array.from({ length: 12 }, (_, i) => Math.sin(3 * i + run)) })
    const now = (await contents(model)).map((data) => [...data])
    expected =
      run === 0
        ? now
        : expected.map((values, i) => values.map((value, k) => 0.75 * value + 0.25 * now[i][k]))
  }
  const own = await contents(model)
  // The count of batches, the last of all, stays.
  expected[expected.length - 1] = [4]
  const averaged = await ema.averageParameters(() => contents(model))
  averaged.forEach((data, i) => {
    expect(largestDistance(data, expected[i])).toBeLessThan(1e-6)
  })
  expect(largestDistance(averaged[6], own[6])).toBeGreaterThan(1e-3)
  expect(await contents(model)).toEqual(own)
  const { buffers } = await ema.stateDict()
  expect(Object.values(buffers!).map(({ data }) => [...data])).toEqual(
    averaged.slice(6, 8).map((data) => [...data]),
  )
  step.destroy()
})
