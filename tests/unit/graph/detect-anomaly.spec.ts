import { afterEach, expect, test, vi } from 'vitest'
import { compile } from '../../../src/graph/compile.ts'
import { compileAccumulated } from '../../../src/graph/compile-accumulated.ts'
import { detectAnomaly } from '../../../src/graph/detect-anomaly.ts'
import { runEagerly } from '../../../src/graph/eager.ts'
import { dropout } from '../../../src/graph/functions/dropout.ts'
import { crossEntropy } from '../../../src/graph/functions.ts'
import { nextRandomStep, resetRandomLayers } from '../../../src/graph/random.ts'
import { CpuRuntime } from '../../../src/graph/runtime.ts'
import type { Tensor } from '../../../src/graph/tensor.ts'
import { BatchNorm1d } from '../../../src/nn/batch-norm.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { type Module, Sequential } from '../../../src/nn/module.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { setSwitches } from '../../../src/util/switches.ts'

// On the cpu: where values stop being finite is found there as on a GPU (tests/gpu/devices.spec.ts).

const runtime = new CpuRuntime()
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
    const loss = crossEntropy(dropout(model.forward(x), 0.25), y)
    optimizer.zeroGrad()
    loss.backward()
    optimizer.step()
    return { loss }
  }
  return { model, optimizer, step }
}

const stateOf = async (model: Module) =>
  Object.entries(await model.stateDict()).map(([key, { data }]) => [key, [...data]])

test('a program that looks for anomalies trains like one that does not', async () => {
  const ends = []
  for (const isLooking of [false, true]) {
    const { model, optimizer, step } = training()
    const program = await compile(step, types, { runtime, detectAnomaly: isLooking })
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
  await expect(program.run(batch(3e38))).rejects.toMatchObject({
    code: 'train.nan',
    message: expect.stringMatching(
      /^batchNorm\w*\(f32\[6, 5\], .*\): expected a finite result, got /,
    ),
  })
  expect([await stateOf(model), await optimizer.stateDict(), nextRandomStep()]).toEqual(before)
  expect((await program.run(batch())).loss[0]).toBeGreaterThan(0)
})

test('an accumulation looks at each of its runs', async () => {
  const { step } = training()
  const program = await compileAccumulated(step, types, { runtime, steps: 2, detectAnomaly: true })
  await program.run(batch())
  await program.run(batch())
  await program.run(batch())
  await expect(program.run(batch(Number.NaN))).rejects.toMatchObject({
    code: 'train.nan',
    message: expect.stringContaining('input "x"'),
  })
})

test('eager runs and looks by hand are there on the cpu too', async () => {
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

test('debug=5 tells which results are not finite', async () => {
  const warned = vi.spyOn(console, 'warn').mockReturnValue()
  const told = vi.spyOn(console, 'info').mockReturnValue()
  setSwitches({ debug: 5 })
  const program = await compile(
    ({ x }) => ({ y: x.log().add(1) }),
    { x: tensorType([2]) },
    { runtime },
  )
  await program.run({ x: Float32Array.of(1, -1) })
  await program.run({ x: Float32Array.of(1, 2) })
  expect(warned.mock.calls.flat().join('\n')).toMatch(
    /run 1, map\(f32\[2\]\), output 0: has values/,
  )
  expect(told.mock.calls.flat()).toEqual([
    expect.stringMatching(/run 1: \d+ ops on the cpu, 2 results with/),
    expect.stringMatching(/run 2: \d+ ops on the cpu, 0 results with/),
  ])
})
