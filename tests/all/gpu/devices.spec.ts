import { afterEach, expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { detectAnomaly } from '../../../src/graph/compile/detect-anomaly.ts'
import { gpu } from '../../../src/graph/compile/gpu.ts'
import { checkpoint, checkpointSequential } from '../../../src/graph/functions/checkpoint.ts'
import { dropout } from '../../../src/graph/functions/dropout.ts'
import { crossEntropy } from '../../../src/graph/functions/linear.ts'
import { Runtime } from '../../../src/graph/memory/runtime.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import { resetRandomLayers } from '../../../src/graph/trace/random.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { BatchNorm1d } from '../../../src/nn/batch-norm.ts'
import { gpt } from '../../../src/nn/gpt.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import { Linear, ReLU } from '../../../src/nn/layers.ts'
import { type Module, Sequential } from '../../../src/nn/module.ts'
import { AdamW } from '../../../src/optim/adam.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { uniform } from '../../../src/util/random.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { models } from '../../support/models.ts'
import { testRuntime } from '../../support/run-op.ts'

afterEach(async () => (await testRuntime()).gpu.check())

const classes = 10

/** Rows of numbers with labels, the same for equal seeds. */
const batch = (rows: number, width: number, seed = 1) => ({
  x: uniform(seed, 0, rows * width, -1, 1),
  y: Int32Array.from(uniform(seed, 1, rows, 0, classes), Math.floor),
})

interface Trained {
  readonly losses: number[]
  readonly parameters: string
  readonly peakBytes: number
  readonly deviceBytes: number
}

/** Trains a new model for some steps and returns everything that two ways of doing it must share. */
async function train(
  make: () => Module,
  forward: (model: Module, x: Tensor) => Tensor,
  sampleShape: readonly number[],
  options: { rows?: number; steps?: number; device?: 'cpu' } = {},
): Promise<Trained> {
  const { rows = 32, steps = 3, device } = options
  manualSeed(7)
  const model = make()
  const optimizer = new AdamW(model.parameters(), { lr: 1e-2 })
  const program = await compile(
    ({ x, y }) => {
      const loss = crossEntropy(forward(model, x), y)
      loss.backward()
      optimizer.step()
      return { loss }
    },
    { x: tensorType([rows, ...sampleShape]), y: tensorType([rows], 'i32') },
    device ? { device } : { runtime: await testRuntime() },
  )
  const width = sampleShape.reduce((product, d) => product * d, 1)
  const losses: number[] = []
  for (let step = 0; step < steps; step++) {
    losses.push((await program.run(batch(rows, width, step + 1))).loss[0])
  }
  const state = await model.stateDict()
  const { peakBytes, deviceBytes } = program.memory
  program.destroy()
  const parameters = Object.values(state)
    .map(({ data }) => [...new Uint32Array(data.buffer)].join())
    .join(';')
  return { losses, parameters, peakBytes, deviceBytes }
}

const depth = 24
const width = 64
const deepMlp = () =>
  new Sequential(
    ...Array.from({ length: depth }, () => [new Linear(width, width), new ReLU()]).flat(),
    new Linear(width, classes),
  )

test('a checkpointed deep MLP trains to the same bits in half the memory', async () => {
  const plain = await train(deepMlp, (model, x) => model.forward(x), [width], {
    rows: 128,
    steps: 2,
  })
  const segments = await train(
    deepMlp,
    (model, x) => checkpointSequential(model as Sequential, 5, x),
    [width],
    { rows: 128, steps: 2 },
  )
  console.log(
    `plain ${plain.deviceBytes} bytes, checkpointed ${segments.deviceBytes}, predicted ${segments.peakBytes}`,
  )
  expect(segments.losses).toEqual(plain.losses)
  expect(segments.parameters).toBe(plain.parameters)
  expect(segments.deviceBytes).toBe(segments.peakBytes)
  expect(segments.deviceBytes).toBeLessThanOrEqual(0.5 * plain.deviceBytes)
})

test('checkpointed blocks of a GPT of 12 layers, dropout included: equal gradients in half the memory', async () => {
  const layers = 12
  const [rows, length, width, tokens] = [2, 16, 16, 16]
  const data = {
    x: Int32Array.from({ length: rows * length }, (_, i) => (i * 7) % tokens),
    y: Int32Array.from({ length: rows * length }, (_, i) => (i * 5 + 3) % tokens),
  }
  const gradientsOf = async (isCheckpointed: boolean) => {
    manualSeed(5)
    resetRandomLayers()
    const model = gpt({
      vocabSize: tokens,
      blockSize: length,
      layers,
      heads: 2,
      width,
      dropout: 0.2,
      checkpoint: isCheckpointed,
    })
    const optimizer = new SGD(model.parameters(), { lr: 0 })
    const program = await compile(
      ({ x, y }) => {
        const loss = crossEntropy(model.forward(x).reshape([rows * length, tokens]), y)
        loss.backward()
        optimizer.step()
        return { loss }
      },
      { x: tensorType([rows, length], 'i32'), y: tensorType([rows * length], 'i32') },
      { runtime: await testRuntime() },
    )
    const { loss } = await program.run(data)
    const { memory } = program
    const gradients = new Map<Parameter, number[]>()
    for (const { parameters, starts, gradientPool } of optimizer.buckets) {
      const contents = await gradientPool.read()
      parameters.forEach((parameter, i) => {
        const own = contents.slice(starts[i], starts[i] + parameter.count)
        gradients.set(parameter, [...new Uint32Array(own.buffer)])
      })
    }
    program.destroy()
    const inOrder = optimizer.paramGroups[0].params.map((parameter) => gradients.get(parameter)!)
    return { loss: loss[0], memory, gradients: inOrder }
  }
  const plain = await gradientsOf(false)
  const segments = await gradientsOf(true)
  console.log(
    `GPT of ${layers} layers: plain ${plain.memory.deviceBytes} bytes, checkpointed ${segments.memory.deviceBytes}, predicted ${plain.memory.peakBytes} and ${segments.memory.peakBytes}`,
  )
  expect(segments.loss).toBe(plain.loss)
  expect(plain.gradients).toHaveLength(4 + 12 * layers)
  for (const words of plain.gradients) expect(words.some((word) => word << 1 !== 0)).toBe(true)
  expect(segments.gradients).toEqual(plain.gradients)
  for (const { memory } of [plain, segments]) expect(memory.deviceBytes).toBe(memory.peakBytes)
  expect(segments.memory.deviceBytes).toBeLessThanOrEqual(0.5 * plain.memory.deviceBytes)
})

test('checkpoints may nest, and may hold convolutions and pooling', async () => {
  const nested = (model: Module, x: Tensor) => {
    const layers = model.children().map(([, layer]) => layer)
    const through = (from: number, to: number) => (input: Tensor) =>
      layers.slice(from, to).reduce((tensor, layer) => layer.forward(tensor), input)
    const inner = (input: Tensor) => through(5, 6)(checkpoint(through(3, 5), input))
    return through(6, 8)(checkpoint(inner, checkpoint(through(0, 3), x)))
  }
  const { make, sampleShape } = models.cnn
  const options = { rows: 4, steps: 2 }
  const plain = await train(make, (model, x) => model.forward(x), sampleShape, options)
  const checkpointed = await train(make, nested, sampleShape, options)
  expect(checkpointed.losses).toEqual(plain.losses)
  expect(checkpointed.parameters).toBe(plain.parameters)
})

test('the CPU runs the same programs to the same numbers', async () => {
  for (const name of ['mlp', 'cnn'] as const) {
    const { make, sampleShape } = models[name]
    const forward = (model: Module, x: Tensor) => model.forward(x)
    const options = { rows: 4, steps: 2 }
    const onGpu = await train(make, forward, sampleShape, options)
    const onCpu = await train(make, forward, sampleShape, { ...options, device: 'cpu' })
    onCpu.losses.forEach((loss, i) => {
      expect(Math.abs(loss - onGpu.losses[i])).toBeLessThan(1e-5)
    })
  }
})

test('a parameter on another device is refused by op, argument and both devices', async () => {
  const layer = new Linear(4, 4)
  layer.parameters()
  const types = { x: tensorType([2, 4]) }
  const forward = ({ x }: Record<string, Tensor>) => ({ y: layer.forward(x) })
  const input = { x: uniform(1, 0, 8) }
  const program = await compile(forward, types, { runtime: await testRuntime() })
  const { y } = await program.run(input)
  await expect(compile(forward, types, { device: 'cpu' })).rejects.toMatchObject({
    code: 'device.mismatch',
    message: expect.stringMatching(
      /matmul: argument 1 \("weight"\): the program runs on cpu, but this tensor is on webgpu:0/,
    ),
  })
  await layer.to('cpu')
  const onCpu = await compile(forward, types, { device: 'cpu' })
  const again = (await onCpu.run(input)).y
  again.forEach((value, i) => {
    expect(Math.abs(value - y[i])).toBeLessThan(1e-6)
  })
  await expect(program.run(input)).rejects.toMatchObject({ code: 'device.mismatch' })
  await layer.to({ type: 'webgpu' })
  expect((await program.run(input)).y).toEqual(y)
})

test('a module moves itself, a tensor gives a new one; what is compiled next finds a move that nobody awaited', async () => {
  const layer = new Linear(4, 4)
  const [weight] = layer.parameters()
  const types = { x: tensorType([2, 4]) }
  const input = { x: uniform(1, 0, 8) }
  const forward = ({ x }: Record<string, Tensor>) => ({ y: layer.forward(x) })
  const moving = layer.to('webgpu', { nonBlocking: true })
  const onGpu = await compile(forward, types, { runtime: await testRuntime() })
  const { y } = await onGpu.run(input)
  expect(await moving).toBe(layer)
  expect(layer.weight).toBe(weight)

  expect(await weight.webgpu()).toBe(weight)
  expect(await weight.copyTo('webgpu:0')).toBe(weight)
  const copy = await weight.cpu()
  expect(copy).not.toBe(weight)
  expect([copy.device?.type, weight.device?.type, copy.name]).toEqual(['cpu', 'webgpu', 'weight'])
  expect(await copy.read()).toEqual(await weight.read())
  expect(await copy.webgpu(0)).not.toBe(weight)
  // The module itself went nowhere.
  expect((await onGpu.run(input)).y).toEqual(y)

  expect(await layer.cpu()).toBe(layer)
  expect(layer.weight).toBe(weight)
  expect(weight.device?.type).toBe('cpu')
  await expect(onGpu.run(input)).rejects.toMatchObject({ code: 'device.mismatch' })
  expect(await layer.webgpu(0)).toBe(layer)
  expect((await onGpu.run(input)).y).toEqual(y)
})

test('gpu lists devices and their properties', async () => {
  expect(await gpu.isAvailable()).toBe(true)
  expect(await gpu.deviceCount()).toBeGreaterThanOrEqual(1)
  expect(gpu.currentDevice()).toBe(0)
  expect((await gpu.getDeviceName()).length).toBeGreaterThan(0)
  const properties = await gpu.getDeviceProperties('webgpu:0')
  expect(properties.maxBufferBytes).toBeGreaterThan(2 ** 20)
  await expect(gpu.getDeviceProperties(9)).rejects.toMatchObject({ code: 'gpu.unavailable' })
  expect(() => gpu.setDevice('cpu')).toThrow(/cpu/)
  expect(() => gpu.setDevice('webgpu')).toThrow(/"webgpu" has no index/)
  expect(() => gpu.setVisibleDevices('0')).toThrow(/visibleDevices is in use, too late/)
})

test('webgpu without an index is the current device, an explicit one goes before it', async () => {
  const count = await gpu.deviceCount()
  const negate = ({ x }: Record<string, Tensor>) => ({ y: x.neg() })
  const types = { x: tensorType([2]) }
  gpu.setDevice(count)
  try {
    for (const options of [{}, { device: 'webgpu' }]) {
      await expect(compile(negate, types, options)).rejects.toMatchObject({
        code: 'gpu.unavailable',
        message: expect.stringContaining(`got webgpu:${count}`),
      })
    }
    await expect(new Linear(2, 2).to('webgpu')).rejects.toMatchObject({
      code: 'gpu.unavailable',
      message: expect.stringContaining(`webgpu:${count}`),
    })
    const onFirst = await compile(negate, types, { device: 'webgpu:0' })
    expect([...(await onFirst.run({ x: Float32Array.of(1, 2) })).y]).toEqual([-1, -2])
  } finally {
    gpu.setDevice(0)
  }
})

test('gpu.benchmark measures kernels and gives the same results within rounding', async () => {
  const { gpu: device } = await testRuntime()
  const runtime = new Runtime(device)
  const weight = new Parameter([24, 64], uniform(3, 0, 24 * 64, -1, 1))
  const run = async () => {
    const program = await compile(
      ({ x }) => ({ y: x.matmul(weight) }),
      { x: tensorType([40, 24]) },
      { runtime },
    )
    return (await program.run({ x: uniform(4, 0, 40 * 24, -1, 1) })).y
  }
  const fixed = await run()
  gpu.benchmark = true
  try {
    const tuned = await run()
    expect(Object.keys(runtime.variants).length).toBe(1)
    tuned.forEach((value, i) => {
      expect(Math.abs(value - fixed[i])).toBeLessThan(1e-5)
    })
  } finally {
    gpu.benchmark = false
  }
})

test('detectAnomaly names the op, or the parameter, that is not finite', async () => {
  const runtime = await testRuntime()
  const types = { x: tensorType([2, 3]) }
  const weight = new Parameter([3, 4], uniform(5, 0, 12, 1, 2))
  weight.name = 'weight'
  const divide = ({ x }: Record<string, Tensor>) => ({
    y: x.sub(x).div(x.sub(x)).matmul(weight),
  })
  const input = { x: uniform(6, 0, 6, 1, 2) }
  await expect(detectAnomaly(runtime, divide, types, input)).rejects.toMatchObject({
    code: 'train.nan',
    message: expect.stringMatching(/^div\(f32\[2, 3\], f32\[2, 3\]\): the result is not finite/),
  })
  const multiply = ({ x }: Record<string, Tensor>) => ({ y: x.matmul(weight) })
  await detectAnomaly(runtime, multiply, types, input)
  weight.assign(new Float32Array(12).fill(Number.NaN))
  await expect(detectAnomaly(runtime, multiply, types, input)).rejects.toMatchObject({
    message: expect.stringMatching(/matmul\(.*parameter "weight"/),
  })
})

test('a program compiled with detectAnomaly stops before it changes anything, running statistics included', async () => {
  const runtime = await testRuntime()
  const types = { x: tensorType([6, 4]), y: tensorType([6], 'i32') }
  const batch = (first: number) => ({
    x: Float32Array.from({ length: 24 }, (_, i) => (i === 0 ? first : Math.cos(i))),
    y: Int32Array.from({ length: 6 }, (_, i) => i % 3),
  })
  const ends = []
  for (const isChecking of [false, true]) {
    manualSeed(4)
    const model = new Sequential(new Linear(4, 5), new BatchNorm1d(5), new Linear(5, 3))
    const optimizer = new SGD(model.parameters(), { lr: 0.1, momentum: 0.9 })
    const step = ({ x, y }: Record<string, Tensor>) => {
      // NaN where the pixels' sum is below -10.
      const loss = crossEntropy(model.forward(x), y).add(x.sum().add(10).sqrt())
      loss.backward()
      optimizer.step()
      return { loss }
    }
    const program = await compile(step, types, { runtime, detectAnomaly: isChecking })
    // Three under way at once: each is looked at when those before it have updated.
    const runs = await Promise.all([1, 2, 3].map((first) => program.run(batch(first))))
    if (isChecking) {
      await expect(program.run(batch(-50))).rejects.toMatchObject({
        code: 'train.nan',
        message: expect.stringMatching(/^sqrt\(f32\[\]\): the result is not finite, /),
      })
    }
    const state = Object.entries(await model.stateDict()).map(([key, { data }]) => [key, ...data])
    ends.push([runs.map(({ loss }) => loss[0]), state])
    program.destroy()
  }
  expect(ends[1]).toEqual(ends[0])
})

test('detectAnomaly draws the masks of the given step, and asks for it when it is missing', async () => {
  const runtime = await testRuntime()
  const types = { x: tensorType([4, 16]) }
  const input = { x: new Float32Array(64).fill(1) }
  // 0 / 0 where the mask drops: in half of the elements, whatever the step.
  const fn = ({ x }: Record<string, Tensor>) => {
    const dropped = dropout(x, 0.5)
    return { y: dropped.div(dropped) }
  }
  await expect(detectAnomaly(runtime, fn, types, input)).rejects.toMatchObject({
    code: 'graph.misuse',
    message: expect.stringMatching(/"randomStep" must be among the scalars/),
  })
  await expect(detectAnomaly(runtime, fn, types, input, { randomStep: 7 })).rejects.toMatchObject({
    code: 'train.nan',
  })
})
