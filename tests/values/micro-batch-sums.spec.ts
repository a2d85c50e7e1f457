import { expect, test } from 'vitest'
import { compile } from '../../src/graph/compile/compile.ts'
import { crossEntropy } from '../../src/graph/functions/losses.ts'
import { Parameter } from '../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import { Linear } from '../../src/nn/layers.ts'
import { Module } from '../../src/nn/module.ts'
import { SGD } from '../../src/optim/sgd.ts'
import { pipeline } from '../../src/parallel/pipeline/pipe.ts'
import { ScheduleGPipe } from '../../src/parallel/pipeline/schedule.ts'
import { tensorType } from '../../src/util/shape.ts'
import { testRuntime } from '../support/run-op.ts'

// Gradients of micro-batches are added in the memory of the first, which nothing else may read.

/** Two biases that are added up have one and the same gradient. */
class Biased extends Module {
  layer = new Linear(3, 3)
  one = new Parameter([3], new Float32Array(3))
  two = new Parameter([3], new Float32Array(3))

  forward(x: Tensor): Tensor {
    return this.layer.forward(x).add(this.one.add(this.two))
  }
}

const types = { x: tensorType([8, 3]), y: tensorType([8], 'i32') }
const inputs = {
  x: Float32Array.from({ length: 24 }, (_, i) => Math.sin(i)),
  y: Int32Array.from({ length: 8 }, (_, i) => i % 3),
}

async function trained(microBatches: number, useNaiveKernels: boolean) {
  const model = new Biased()
  const weights = Float32Array.from({ length: 9 }, (_, i) => Math.cos(i))
  model.loadStateDict({
    ...(await model.stateDict()),
    'layer.weight': { shape: [3, 3], data: weights },
    'layer.bias': { shape: [3], data: new Float32Array(3) },
  })
  const pipe = await pipeline(model, { stages: 1, devices: [(await testRuntime()).device] })
  const schedule = new ScheduleGPipe(pipe, { microBatches, lossFn: crossEntropy })
  const optimizer = new SGD(model.parameters(), { lr: 0.5 })
  const step = await compile(
    ({ x, y }) => {
      optimizer.zeroGrad()
      const { loss } = schedule.step(x, y)
      // A reader of the sum, and of a gradient that others share.
      const grad = model.one.grad!.mul(2)
      optimizer.step()
      return { loss, grad }
    },
    types,
    { useNaiveKernels, runtime: await testRuntime() },
  )
  const outputs = []
  for (let i = 0; i < 3; i++) outputs.push(await step.run(inputs))
  step.destroy()
  return { outputs, state: await model.stateDict() }
}

test('sums in place are those of separate tensors, where parameters share a gradient too', async () => {
  const apart = await trained(4, true)
  const inPlace = await trained(4, false)
  for (const [key, { data }] of Object.entries(apart.state)) {
    const summed = inPlace.state[key].data
    for (const [i, value] of data.entries()) expect(summed[i]).toBeCloseTo(value, 6)
  }
  const whole = await trained(1, false)
  for (const [key, { data }] of Object.entries(whole.state)) {
    const summed = apart.state[key].data
    for (const [i, value] of data.entries()) expect(summed[i]).toBeCloseTo(value, 6)
  }
  expect(apart.state.one).toEqual(apart.state.two)
})
