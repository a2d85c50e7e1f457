import { expect, test } from 'vitest'
import { compile } from '../../src/graph/compile/compile.ts'
import { compileAccumulated } from '../../src/graph/compile/compile-accumulated.ts'
import { gpu as gpus } from '../../src/graph/compile/gpu.ts'
import { crossEntropy } from '../../src/graph/functions/losses.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import { BatchNorm1d } from '../../src/nn/batch-norm.ts'
import { manualSeed } from '../../src/nn/init.ts'
import { Linear } from '../../src/nn/layers.ts'
import { Sequential } from '../../src/nn/module.ts'
import { Adam } from '../../src/optim/adam.ts'
import { tensorType } from '../../src/util/shape.ts'
import { testRuntime } from '../support/run-op.ts'

// Device memory of models, optimizers and programs that are no longer used.

const types = { x: tensorType([4, 8]), y: tensorType([4], 'i32') }
const batch = (i: number) => ({
  x: Float32Array.from({ length: 32 }, (_, j) => Math.sin(32 * i + j)),
  y: Int32Array.of(i % 3, 1, 2, 0),
})

async function training() {
  const runtime = await testRuntime()
  manualSeed(1)
  const model = new Sequential(new Linear(8, 64), new BatchNorm1d(64), new Linear(64, 3))
  const optimizer = new Adam(model.parameters(), { lr: 0.01 })
  const lossOf = ({ x, y }: Record<string, Tensor>) => {
    const loss = crossEntropy(model.forward(x), y)
    loss.backward()
    return loss
  }
  const fn = (inputs: Record<string, Tensor>) => {
    optimizer.zeroGrad()
    const loss = lossOf(inputs)
    optimizer.step()
    return { loss }
  }
  return { runtime, model, optimizer, fn, step: await compile(fn, types, { runtime }) }
}

test('nothing stays on the device after destroy() of a step and cpu() of its model', async () => {
  const { gpu } = await testRuntime()
  const before = gpu.usedBytes
  for (let i = 0; i < 3; i++) {
    const { runtime, model, optimizer, fn, step } = await training()
    const evaluate = await compile(
      ({ x }) => ({ y: model.forward(x) }),
      { x: types.x },
      { runtime },
    )
    await evaluate.run({ x: batch(0).x })
    await step.run(batch(0))
    const accumulated = await compileAccumulated(fn, types, { runtime, steps: 2 })
    for (const at of [0, 1]) await accumulated.run(batch(at))
    for (const program of [evaluate, step, accumulated]) program.destroy()
    await model.cpu()
    expect(gpu.usedBytes).toBe(before)
    // On the host, where it can still be saved.
    const { state } = await optimizer.stateDict()
    expect(state[0]).toMatchObject({ step: 2 })
    expect(Math.max(...(state[0]['exp_avg'] as { data: Float32Array }).data)).toBeGreaterThan(0)
  }
})

test('a step trains on to the same bits after cpu() and back, with the same optimizer', async () => {
  const trained = async (moves: boolean) => {
    const { model, optimizer, step } = await training()
    for (let i = 0; i < 4; i++) {
      await step.run(batch(i))
      if (!moves || i !== 1) continue
      await model.cpu()
      await model.webgpu()
    }
    const saved = [await model.stateDict(), await optimizer.stateDict()]
    step.destroy()
    model.destroy()
    return saved
  }
  expect(await trained(true)).toEqual(await trained(false))
})

test('a model that moves while a step runs breaks neither the step nor the device', async () => {
  const { runtime, model, step } = await training()
  const { gpu } = runtime
  const running = [step.run(batch(0)), step.run(batch(1)), step.run(batch(2))]
  const moved = model.cpu()
  await Promise.all(running)
  await moved
  await expect(step.run(batch(3))).rejects.toMatchObject({ code: 'device.mismatch' })
  await gpu.wait(gpu.queue.onSubmittedWorkDone())
  step.destroy()
})

test('destroy() of a model frees its device memory, and what uses it afterwards is refused', async () => {
  const { gpu } = await testRuntime()
  const before = gpu.usedBytes
  const { model, optimizer, step } = await training()
  await step.run(batch(0))
  const held = step.memory.deviceBytes + step.memory.ioBytes
  model.destroy()
  model.destroy()
  // What times the program is not in its `memory`.
  expect(gpu.usedBytes - before).toBeLessThan(held + 256)
  const gone = {
    code: 'graph.misuse',
    message: expect.stringContaining(': destroy() of its module has'),
  }
  await expect(step.run(batch(1))).rejects.toMatchObject(gone)
  await expect(model.stateDict()).rejects.toMatchObject(gone)
  await expect(optimizer.stateDict()).rejects.toMatchObject(gone)
  await expect(model.cpu()).rejects.toMatchObject(gone)
  step.destroy()
  expect(gpu.usedBytes).toBe(before)
})

test('a program that the cap refuses leaves nothing behind, and fits when another is gone', async () => {
  const runtime = await testRuntime()
  const { gpu } = runtime
  const make = () => {
    const model = new Linear(256, 256)
    const program = compile(
      ({ x }) => ({ y: model.forward(x) }),
      { x: tensorType([2, 256]) },
      { runtime },
    )
    return { model, program }
  }
  const first = make()
  await first.program
  const used = gpu.usedBytes
  gpus.setMemoryCap(used + 100_000)
  try {
    await expect(make().program).rejects.toMatchObject({ code: 'gpu.limit' })
    expect(gpu.usedBytes).toBe(used)
    first.model.destroy()
    ;(await first.program).destroy()
    const { model, program } = make()
    await (await program).run({ x: new Float32Array(512) })
    ;(await program).destroy()
    model.destroy()
  } finally {
    gpus.setMemoryCap(null)
  }
})
