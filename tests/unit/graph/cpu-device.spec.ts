import { afterEach, expect, test, vi } from 'vitest'
import {
  type CompileOptions,
  compile,
  gpu as gpuSettings,
  manualSeed,
  tensorType,
} from '../../../src/entries/index.ts'
import { crossEntropy } from '../../../src/entries/nn/functional.ts'
import { Linear, ReLU, Sequential } from '../../../src/entries/nn.ts'
import { AdamW } from '../../../src/entries/optim.ts'
import { type AdapterFacts, Gpu } from '../../../src/gpu/device.ts'
import { getNumThreads, setNumThreads } from '../../../src/gpu/num-threads.ts'
import { WasmDevice } from '../../../src/gpu/wasm/device.ts'
import { WasmHeap } from '../../../src/gpu/wasm/heap.ts'
import { openWasm } from '../../../src/gpu/wasm/open.ts'
import { Runtime } from '../../../src/graph/memory/runtime.ts'
import { compileKernel } from '../../../src/wasm/compile-kernel.ts'
import { updateStep } from '../../support/update-step.ts'

// The device cpu: the shaders of a GPU, compiled to WebAssembly, in Node as on pages.

const threads = getNumThreads()

afterEach(() => {
  setNumThreads(threads)
  vi.restoreAllMocks()
  vi.unstubAllGlobals()
  gpuSettings.benchmark = false
})

const types = { x: tensorType([16, 8]), y: tensorType([16], 'i32') }

async function mlp(options: CompileOptions) {
  manualSeed(5)
  const model = new Sequential(new Linear(8, 20), new ReLU(), new Linear(20, 3))
  const optimizer = new AdamW(model.parameters(), { lr: 0.02 })
  const step = await compile(
    updateStep(optimizer, ({ x, y }) => crossEntropy(model.forward(x), y)),
    types,
    options,
  )
  const run = async (at: number) => {
    const x = Float32Array.from({ length: 128 }, (_, i) => Math.sin(i * (at + 1)))
    const y = Int32Array.from(
      { length: 16 },
      (_, i) => Number(x[8 * i] > 0) + Number(x[8 * i + 1] > 0),
    )
    return (await step.run({ x, y })).loss[0]
  }
  return { model, step, run }
}

test('an MLP trains on cpu to the losses of its reference', async () => {
  const [own, reference] = [await mlp({ device: 'cpu' }), await mlp({ device: 'reference' })]
  for (let at = 0; at < 20; at++)
    expect(Math.abs((await own.run(at)) - (await reference.run(at)))).toBeLessThan(1e-5)
  const weights = await Promise.all(
    [own, reference].map(({ model }) => model.parameters()[0].read()),
  )
  for (const [i, weight] of weights[0].entries())
    expect(Math.abs(weight - weights[1][i])).toBeLessThan(1e-5)
  expect(own.model.parameters()[0].device).toEqual({ type: 'cpu', index: 0 })
  // No WebGPU here: the device that is chosen is this one.
  await gpuSettings.synchronize()
  expect(await gpuSettings.memoryAllocated()).toBe(await gpuSettings.memoryAllocated('cpu'))
  expect(await gpuSettings.memoryAllocated()).toBeGreaterThan(1000)
  for (const { step, model } of [own, reference]) {
    step.destroy()
    model.destroy()
  }
})

/** A device of one thread. */
function deviceOf(heap: WasmHeap): Runtime {
  const device = new WasmDevice(heap, compileKernel)
  const id = { type: 'cpu', index: 0 } as const
  return new Runtime(new Gpu(device as unknown as GPUDevice, {} as AdapterFacts, id))
}

test('200 steps and 5 programs make no buffer and take no page more, and destroyed ones leave none', async () => {
  const heap = new WasmHeap()
  const runtime = deviceOf(heap)
  const { gpu } = runtime
  const bytes = { memory: 0, scratch: 0 }
  for (let program = 0; program < 5; program++) {
    const { model, step, run } = await mlp({ runtime })
    for (let at = 0; at < 3; at++) await run(at)
    const { buffers, bindGroups, pipelines } = gpu.counters
    const held = gpu.usedBytes
    bytes.memory ||= heap.memory.buffer.byteLength
    for (let at = 0; at < 40; at++) await run(at)
    expect(gpu.counters).toMatchObject({ buffers, bindGroups, pipelines })
    expect(gpu.usedBytes).toBe(held)
    expect(heap.memory.buffer.byteLength).toBe(bytes.memory)
    step.destroy()
    model.destroy()
    bytes.scratch ||= heap.takenBytes
    expect([gpu.usedBytes, heap.takenBytes]).toEqual([0, bytes.scratch])
  }
  gpu.close()
})

test('messages arrive while a step computes', async () => {
  const size = 160
  const layer = new Linear(size, size)
  const forward = await compile(
    ({ x }) => {
      let y = x
      for (let i = 0; i < 30; i++) y = layer.forward(y)
      return { y: y.sum() }
    },
    { x: tensorType([size, size]) },
    { device: 'cpu' },
  )
  const { port1, port2 } = new MessageChannel()
  let turns = 0
  port1.onmessage = () => {
    turns++
    port2.postMessage(null)
  }
  port2.postMessage(null)
  await forward.run({ x: new Float32Array(size * size).fill(0.01) })
  port1.close()
  expect(turns).toBeGreaterThan(3)
  forward.destroy()
})

test('a program that does not fit is refused with its largest ops, and the device stays usable', async () => {
  const runtime = deviceOf(new WasmHeap(64))
  const make = (size: number) =>
    compile(
      ({ x }) => ({ y: x.matmul(x).exp().matmul(x).sum() }),
      { x: tensorType([size, size]) },
      { runtime },
    )
  await expect(make(1024)).rejects.toMatchObject({
    code: 'gpu.limit',
    message: expect.stringContaining('Its largest tensors: matmul'),
  })
  const small = await make(4)
  const { y } = await small.run({ x: new Float32Array(16) })
  expect(y[0]).toBe(0)
  small.destroy()
  expect(runtime.gpu.usedBytes).toBe(0)
})

test.each([
  ['parameters', 20],
  ['states', 44],
])(
  'a training is refused at compile time when its %s do not fit, and the model keeps its weights',
  async (_, pages) => {
    const runtime = deviceOf(new WasmHeap(pages))
    const layer = new Linear(512, 512)
    const optimizer = new AdamW(layer.parameters(), { lr: 0.1 })
    const before = await layer.parameters()[0].read()
    const step = updateStep(optimizer, ({ x }) => layer.forward(x).sum())
    await expect(compile(step, { x: tensorType([2, 512]) }, { runtime })).rejects.toMatchObject({
      code: 'gpu.limit',
      message: expect.stringMatching(
        /of the [\d.]+MiB that WebAssembly gives are taken\. .*Its largest tensors: ("(gradients|parameters|exp_avg|exp_avg_sq) of bucket 0: bias to weight" with 1050624 bytes(, )?){4}\.$/,
      ),
    })
    const after = await layer.parameters()[0].read()
    expect(after.every((value, i) => value === before[i])).toBe(true)
    const sum = await compile(({ x }) => ({ y: x.sum() }), { x: tensorType([2]) }, { runtime })
    expect((await sum.run({ x: Float32Array.of(1, 2) })).y[0]).toBe(3)
  },
)

test('a program is refused with what the browser gives when memory grows no more', async () => {
  const heap = new WasmHeap()
  heap.memory.grow = () => {
    throw new RangeError('no memory')
  }
  const options = { runtime: deviceOf(heap) }
  const program = compile(({ x }) => ({ y: x.exp() }), { x: tensorType([2 ** 16]) }, options)
  await expect(program).rejects.toMatchObject({
    code: 'gpu.limit',
    message: expect.stringMatching(
      /needs 256KiB in one piece, and [\d.]+\w+ of the [\d.]+\w+ that the browser or process gives are taken\. It gives no more: close other tabs or programs, /,
    ),
  })
})

test('a page whose memory cannot be shared warns, and computes the same on one thread', async () => {
  vi.stubGlobal('crossOriginIsolated', false)
  const warn = vi.spyOn(console, 'warn').mockReturnValue()
  setNumThreads(2)
  const gpu = await openWasm()
  expect(warn.mock.calls).toEqual([
    [expect.stringContaining('computes on 1 of 2 threads: the page is not isolated')],
  ])
  const own = await mlp({ runtime: new Runtime(gpu) })
  const other = await mlp({ device: 'cpu' })
  for (let at = 0; at < 3; at++) expect(await own.run(at)).toBe(await other.run(at))
  gpu.close()
})

test('variants are measured on cpu, in Node too', async () => {
  gpuSettings.benchmark = true
  const program = await compile(
    ({ x }) => ({ y: x.matmul(x).sum() }),
    { x: tensorType([8, 8]) },
    { device: 'cpu' },
  )
  expect((await program.run({ x: new Float32Array(64).fill(1) })).y[0]).toBe(512)
  program.destroy()
})
