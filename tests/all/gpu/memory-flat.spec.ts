import { expect, test } from 'vitest'
import { TensorDataset } from '../../../src/data/datasets.ts'
import { DataLoader } from '../../../src/data/loader/data-loader.ts'
import { hostTensor } from '../../../src/data/samples.ts'
import { StagedUploads } from '../../../src/gpu/staging.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { crossEntropy } from '../../../src/graph/functions/linear.ts'
import { cnn } from '../../../src/nn/cnn.ts'
import { Linear, ReLU } from '../../../src/nn/layers.ts'
import { Sequential } from '../../../src/nn/module.ts'
import { AdamW } from '../../../src/optim/adam.ts'
import { StepLR } from '../../../src/optim/lr-scheduler/decays.ts'
import { uniform } from '../../../src/util/random.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { testRuntime } from '../../support/run-op.ts'
import { updateStep } from '../../support/update-step.ts'

const rows = 8
const features = 12
const classes = 4

interface Engine {
  readonly gc: () => void
  readonly heapBytes: () => number
  /** Of the process; a page is not told. */
  readonly residentBytes?: () => number
}

/** Node, or a browser that was started with --js-flags=--expose-gc and --enable-precise-memory-info. */
function engine(): Engine {
  if (typeof document === 'undefined') {
    process.getBuiltinModule('node:v8').setFlagsFromString('--expose-gc')
    return {
      gc: process.getBuiltinModule('node:vm').runInNewContext('gc'),
      heapBytes: () => process.memoryUsage().heapUsed,
      residentBytes: () => process.memoryUsage().rss,
    }
  }
  const { gc, performance } = globalThis as unknown as {
    gc(): void
    performance: { memory: { usedJSHeapSize: number } }
  }
  return { gc, heapBytes: () => performance.memory.usedJSHeapSize }
}

const { gc, heapBytes: heapNow, residentBytes } = engine()

/**
 * Bytes of live JavaScript objects: what is left when collecting garbage frees no more. One collection does not do: handles of the GPU
 * are let go in later tasks.
 */
async function heapBytes(): Promise<number> {
  let min = Number.POSITIVE_INFINITY
  for (let unchanged = 0; unchanged < 3; ) {
    await new Promise((resolve) => setTimeout(resolve, 20))
    gc()
    const bytes = heapNow()
    unchanged = bytes < min - 1000 ? 0 : unchanged + 1
    min = Math.min(min, bytes)
  }
  return min
}

test('steps leave buffers and JavaScript heap as they were', async () => {
  const { gpu } = await testRuntime()
  const model = new Sequential(new Linear(features, 16), new ReLU(), new Linear(16, classes))
  const optimizer = new AdamW(model.parameters(), { lr: 1e-2 })
  const scheduler = new StepLR(optimizer, 100, { gamma: 0.9 })
  const program = await compile(
    updateStep(optimizer, ({ x, y }) => crossEntropy(model.forward(x), y)),
    { x: tensorType([rows, features]), y: tensorType([rows], 'i32') },
    { runtime: await testRuntime() },
  )
  const x = uniform(1, 0, rows * features, -1, 1)
  const y = Int32Array.from(uniform(1, 1, rows, 0, classes), Math.floor)
  let loss = Number.NaN
  /** As a training loop: a few steps under way at once. */
  const train = async (count: number) => {
    const underWay: ReturnType<typeof program.run>[] = []
    for (let step = 0; step < count; step++) {
      underWay.push(program.run({ x, y }))
      scheduler.step()
      if (underWay.length > 3) loss = (await underWay.shift()!).loss[0]
    }
    for (const outputs of underWay) loss = (await outputs).loss[0]
  }
  // Until then the engine of the browser compiles what runs often, and staging buffers for steps under way are made.
  await train(residentBytes ? 5000 : 1300)
  const first = loss
  const { buffers, bindGroups, pipelines } = gpu.counters
  const heap = [await heapBytes()]
  // Node's engine still compiles; its growth ends, and counts less over more steps.
  const steps = residentBytes ? 10_000 : 1000
  for (let half = 0; half < 2; half++) {
    await train(steps)
    heap.push(await heapBytes())
  }
  // What each step leaves behind is left in both halves; what the engine compiles meanwhile is not.
  const grown = Math.min(heap[1] - heap[0], heap[2] - heap[1])
  console.log(`the heap before, after ${steps} and ${2 * steps} steps: ${heap.join(', ')} bytes`)
  expect(loss).toBeLessThan(first)
  expect(gpu.counters).toMatchObject({ buffers, bindGroups, pipelines })
  // A promise or a closure and what holds it take 30 bytes and more; the engine's own books are up to 14 bytes a step here.
  expect(grown).toBeLessThan(20 * steps)
  program.destroy()
  gpu.check()
})

test('epochs of a CNN over a loader with staged uploads leave buffers and heap as they were', async () => {
  const runtime = await testRuntime()
  const { gpu } = runtime
  const [samples, side, batchSize] = [96, 8, 8]
  const perEpoch = samples / batchSize
  const model = cnn({ sampleShape: [1, side, side], channels: [3, 4], classes })
  const optimizer = new AdamW(model.parameters(), { lr: 1e-2 })
  const program = await compile(
    updateStep(optimizer, ({ x, y }) => crossEntropy(model.forward(x), y)),
    { x: tensorType([batchSize, 1, side, side]), y: tensorType([batchSize], 'i32') },
    { runtime },
  )
  const uploads = new StagedUploads(gpu)
  const loader = new DataLoader(
    new TensorDataset({
      x: hostTensor([samples, 1, side, side], uniform(2, 0, samples * side * side, -1, 1)),
      y: hostTensor([samples], Int32Array.from(uniform(2, 1, samples, 0, classes), Math.floor)),
    }),
    { batchSize, shuffle: true, pinMemory: uploads },
  )
  let loss = Number.NaN
  const train = async (epochs: number) => {
    for (let epoch = 0; epoch < epochs; epoch++) {
      const underWay: ReturnType<typeof program.run>[] = []
      for await (const batch of loader) {
        underWay.push(program.run(batch))
        if (underWay.length > 3) loss = (await underWay.shift()!).loss[0]
      }
      for (const outputs of underWay) loss = (await outputs).loss[0]
    }
  }
  // The engine compiles the loader's and the uploads' code later than the step's.
  await train(200)
  const first = loss
  const { buffers, bindGroups, pipelines } = gpu.counters
  const heap = [await heapBytes()]
  const epochs = 80
  for (let half = 0; half < 2; half++) {
    await train(epochs / 2)
    heap.push(await heapBytes())
  }
  const grown = Math.min(heap[1] - heap[0], heap[2] - heap[1])
  console.log(`the heap before, after ${epochs / 2} and ${epochs} epochs: ${heap.join(', ')} bytes`)
  expect(loss).toBeLessThan(first)
  expect(gpu.counters).toMatchObject({ buffers, bindGroups, pipelines })
  expect(grown).toBeLessThan((20 * epochs * perEpoch) / 2)
  program.destroy()
  uploads.destroy()
  gpu.check()
})

test('programs of other shapes leave no kernels behind when they are destroyed', async () => {
  const runtime = await testRuntime()
  const { gpu } = runtime
  let units = 16
  const train = async (count: number) => {
    for (const end = units + count; units < end; units++) {
      const model = new Sequential(new Linear(features, units), new ReLU(), new Linear(units, 4))
      const optimizer = new AdamW(model.parameters(), { lr: 1e-2 })
      const program = await compile(
        updateStep(optimizer, ({ x, y }) => crossEntropy(model.forward(x), y)),
        { x: tensorType([rows, features]), y: tensorType([rows], 'i32') },
        { runtime },
      )
      await program.run({ x: new Float32Array(rows * features), y: new Int32Array(rows) })
      program.destroy()
    }
    const heap = await heapBytes()
    return { heap, resident: residentBytes?.() ?? 0 }
  }
  // Some kernels are kept for a program that is built again, and a worker of the device cpu is replaced now and then.
  await train(60)
  const { buffers } = gpu.counters
  const before = await train(20)
  const programs = 60
  const after = await train(programs)
  const grown = { heap: after.heap - before.heap, resident: after.resident - before.resident }
  console.log(`${programs} programs: ${JSON.stringify(grown)} bytes`)
  expect(gpu.counters.buffers).toBeGreaterThan(buffers)
  expect(grown.heap / programs).toBeLessThan(20_000)
  expect(grown.resident / programs).toBeLessThan(200_000)
  gpu.check()
})
