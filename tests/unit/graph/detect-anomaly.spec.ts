import { afterEach, expect, test, vi } from 'vitest'
import { DistributedDataParallel } from '../../../src/ddp/data-parallel/data-parallel.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { compileAccumulated } from '../../../src/graph/compile/compile-accumulated.ts'
import { detectAnomaly } from '../../../src/graph/compile/detect-anomaly.ts'
import { runEagerly } from '../../../src/graph/compile/eager.ts'
import { dropout } from '../../../src/graph/functions/dropout.ts'
import { where } from '../../../src/graph/functions/elementwise.ts'
import { crossEntropy } from '../../../src/graph/functions/linear.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { nextRandomStep, resetRandomLayers } from '../../../src/graph/trace/random.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { BatchNorm1d } from '../../../src/nn/batch-norm.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { type Module, Sequential } from '../../../src/nn/module.ts'
import { clipGradNorm } from '../../../src/optim/clip.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { setSwitches } from '../../../src/util/switches.ts'
import { ringOf } from '../../support/process-ring.ts'

// On the cpu: where values stop being finite is found there as on a GPU (tests/all/gpu/devices.spec.ts).

const runtime = new ReferenceRuntime()
const rows = 6
const types = { x: tensorType([rows, 4]), y: tensorType([rows], 'i32') }
const batch = (first = 1) => ({
  x: Float32Array.from({ length: rows * 4 }, (_, i) => (i === 0 ? first : Math.cos(i))),
  y: Int32Array.from({ length: rows }, (_, i) => i % 3),
})

/** Running statistics, masks and momentum: all that a look must leave alone. */
function training() {
  manualSeed(3)
  resetRandomLayers()
  const model = new Sequential(new Linear(4, 5), new BatchNorm1d(5), new Linear(5, 3))
  const optimizer = new SGD(model.parameters(), { lr: 0.1, momentum: 0.9 })
  const step = ({ x, y }: Record<string, Tensor>) => {
    // NaN where the pixels' sum is below -10.
    const loss = crossEntropy(dropout(model.forward(x), 0.25), y).add(x.sum().add(10).sqrt())
    optimizer.zeroGrad()
    loss.backward()
    optimizer.step()
    return { loss }
  }
  return { model, optimizer, step }
}

const stateOf = async (model: Module) =>
  Object.entries(await model.stateDict()).map(([key, { data }]) => [key, [...data]])

test('a program with detectAnomaly trains as one without it', async () => {
  const ends = []
  for (const isChecking of [false, true]) {
    const { model, optimizer, step } = training()
    const program = await compile(step, types, { runtime, detectAnomaly: isChecking })
    const losses = []
    for (let i = 0; i < 4; i++) losses.push((await program.run(batch())).loss[0])
    ends.push([losses, await stateOf(model), await optimizer.stateDict()])
  }
  expect(ends[1]).toEqual(ends[0])
})

test('the run that would spoil the weights names the op, and changes nothing', async () => {
  const { model, optimizer, step } = training()
  const program = await compile(step, types, { runtime, detectAnomaly: true })
  await program.run(batch())
  const before = [await stateOf(model), await optimizer.stateDict(), nextRandomStep()]
  await expect(program.run(batch(-50))).rejects.toMatchObject({
    code: 'train.nan',
    message: expect.stringMatching(
      /^sqrt\(f32\[\]\): the result is not finite, although its arguments are/,
    ),
  })
  expect([await stateOf(model), await optimizer.stateDict(), nextRandomStep()]).toEqual(before)
  expect((await program.run(batch())).loss[0]).toBeGreaterThan(0)
})

test('an accumulation is checked in each of its runs', async () => {
  const { step } = training()
  const program = await compileAccumulated(step, types, { runtime, steps: 2, detectAnomaly: true })
  await program.run(batch())
  await program.run(batch())
  expect(program.isLast).toBe(false)
  await expect(program.run(batch(Number.NaN))).rejects.toMatchObject({
    code: 'train.nan',
    message: expect.stringContaining('input "x"'),
  })
  expect(program.isLast, 'a refused run is none').toBe(false)
  await program.run(batch())
  expect(program.isLast).toBe(true)
})

test('infinite values that are intended are no anomaly', async () => {
  const hide = ({ x }: Record<string, Tensor>) => ({
    y: where(x.gt(0), x, Number.NEGATIVE_INFINITY).softmax(1).sum(),
  })
  const options = { runtime, detectAnomaly: true }
  const program = await compile(hide, { x: tensorType([1, 4]) }, options)
  expect((await program.run({ x: Float32Array.of(1, -1, 2, -2) })).y[0]).toBeCloseTo(1)
  await expect(program.run({ x: Float32Array.of(-1, -1, -2, -2) })).rejects.toMatchObject({
    message: expect.stringMatching(
      /^where\(.*the result is not finite, and softmax\(.* turns it into NaN/,
    ),
  })
})

test('a gradient may be the first that is not finite: the loss is, and the run changes nothing', async () => {
  const model = new Linear(2, 1, { bias: false })
  model.weight.assign(Float32Array.of(1, 1))
  const optimizer = new SGD(model.parameters(), { lr: 0.1 })
  const step = ({ x }: Record<string, Tensor>) => {
    // The root's slope is infinite at 0, and 0 times that is no number.
    const loss = model.forward(x).sqrt().sum()
    optimizer.zeroGrad()
    loss.backward()
    optimizer.step()
    return { loss }
  }
  const types = { x: tensorType([1, 2]) }
  const program = await compile(step, types, { runtime, detectAnomaly: true })
  expect((await program.run({ x: Float32Array.of(4, 0) })).loss[0]).toBe(2)
  const before = await stateOf(model)
  await expect(program.run({ x: Float32Array.of(0, 0) })).rejects.toMatchObject({
    code: 'train.nan',
    message: expect.stringMatching(
      /^mul\+div\(.*\) in the backward of sqrt\(f32\[1, 1\]\): the result is not finite, and .* turns it into NaN/,
    ),
  })
  expect(await stateOf(model)).toEqual(before)
})

test('an infinite loss is one, and names where it came from', async () => {
  const fn = ({ x }: Record<string, Tensor>) => ({ loss: x.exp().sum().mul(2) })
  const program = await compile(fn, { x: tensorType([2]) }, { runtime, detectAnomaly: true })
  await expect(program.run({ x: Float32Array.of(1, 100) })).rejects.toMatchObject({
    message: expect.stringMatching(/^exp\(f32\[2\]\): .*, and output "loss" depends on it/),
  })
})

test('checks that belong to the update wait for the run itself', async () => {
  const { model, optimizer } = training()
  const step = ({ x, y }: Record<string, Tensor>) => {
    const loss = crossEntropy(model.forward(x), y)
    loss.backward()
    const norm = clipGradNorm(model.parameters(), 1, { errorIfNonfinite: true })
    optimizer.step()
    return { loss, norm }
  }
  const program = await compile(step, types, { runtime, detectAnomaly: true })
  expect((await program.run(batch())).norm[0]).toBeGreaterThan(0)
})

test('all ranks end a run that one of them refuses, and the next one works', async () => {
  const groups = await ringOf(2)
  const ends = await Promise.all(
    groups.map(async (processGroup, rank) => {
      manualSeed(5)
      const model = new DistributedDataParallel(new Linear(4, 3), { processGroup })
      await model.ready
      const optimizer = new SGD(model.parameters(), { lr: 0.1 })
      const step = ({ x, y }: Record<string, Tensor>) => {
        const loss = crossEntropy(model.forward(x), y)
        loss.backward()
        optimizer.step()
        return { loss }
      }
      const program = await compile(step, types, {
        runtime: new ReferenceRuntime(),
        detectAnomaly: true,
      })
      await program.run(batch())
      const refusal = await program.run(batch(rank === 1 ? Number.NaN : 1)).then(
        () => 'none',
        ({ code, message }) => `${code} ${message}`,
      )
      const { loss } = await program.run(batch())
      return { refusal, loss: loss[0] }
    }),
  )
  for (const { refusal, loss } of ends) {
    expect(refusal).toMatch(
      /^train.nan rank 1: \w+\(.*: expected finite arguments, but input "x" has values that are not finite/,
    )
    expect(loss).toBe(ends[0].loss)
    expect(loss).toBeGreaterThan(0)
  }
  for (const group of groups) group.destroy()
})

test('eager runs and detectAnomaly as a call work on the cpu too', async () => {
  const masks = { randomStep: 1 }
  const { step, model } = training()
  const seen: string[] = []
  const onKernel = (label: string) => seen.push(label)
  const { loss } = await runEagerly(runtime, step, types, batch(), masks, { onKernel })
  expect(seen.length).toBeGreaterThan(10)
  const other = training()
  const program = await compile(other.step, types, { runtime })
  expect((await program.run(batch(), masks)).loss).toEqual(loss)
  expect(await stateOf(other.model)).toEqual(await stateOf(model))
  await detectAnomaly(runtime, step, types, batch(), masks)
  await expect(
    detectAnomaly(runtime, step, types, batch(Number.POSITIVE_INFINITY), masks),
  ).rejects.toMatchObject({ code: 'train.nan' })
})

afterEach(() => {
  vi.restoreAllMocks()
  setSwitches({ debug: 0 })
})

test('debug=5 reports which results are not finite', async () => {
  const warned = vi.spyOn(console, 'warn').mockReturnValue()
  const received = vi.spyOn(console, 'info').mockReturnValue()
  setSwitches({ debug: 5 })
  const program = await compile(
    ({ x }) => ({ y: x.log().add(1) }),
    { x: tensorType([2]) },
    { runtime },
  )
  await program.run({ x: Float32Array.of(1, -1) })
  await program.run({ x: Float32Array.of(1, 2) })
  expect(warned.mock.calls.flat().join('\n')).toMatch(
    /run 1, log\(f32\[2\]\), output 0: has values/,
  )
  expect(received.mock.calls.flat()).toEqual([
    expect.stringMatching(/run 1: \d+ ops on reference, 2 results with/),
    expect.stringMatching(/run 2: \d+ ops on reference, 0 results with/),
  ])
})
