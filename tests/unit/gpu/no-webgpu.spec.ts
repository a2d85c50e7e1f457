import { expect, test, vi } from 'vitest'
import { compile, gpu, tensorType } from '../../../src/entries/index.ts'
import { crossEntropy } from '../../../src/entries/nn/functional.ts'
import { Linear } from '../../../src/entries/nn.ts'
import { AdamW } from '../../../src/entries/optim.ts'
import { chooseDevice } from '../../../src/graph/memory/choose-device.ts'
import { openRuntime } from '../../../src/graph/memory/runtime.ts'
import { updateStep } from '../../support/update-step.ts'

// Node has no WebGPU, as a browser that has it switched off.

test('no device is counted, and the script that asks first trains on the CPU', async () => {
  expect(await gpu.isAvailable()).toBe(false)
  expect(await gpu.deviceCount()).toBe(0)
  await expect(gpu.getDeviceName(0)).rejects.toMatchObject({ code: 'gpu.unavailable' })

  const device = (await gpu.isAvailable()) ? 'webgpu' : 'cpu'
  const model = new Linear(2, 2)
  const optimizer = new AdamW(model.parameters(), { lr: 0.1 })
  const step = await compile(
    updateStep(optimizer, ({ x, y }) => crossEntropy(model.forward(x), y)),
    { x: tensorType([2, 2]), y: tensorType([2], 'i32') },
    { device },
  )
  const batch = { x: Float32Array.of(1, 0, 0, 1), y: Int32Array.of(0, 1) }
  const losses: number[] = []
  for (let i = 0; i < 30; i++) losses.push((await step.run(batch)).loss[0])
  expect(losses[29]).toBeLessThan(losses[0] / 4)
  step.destroy()
})

test('the device auto is the CPU', async () => {
  expect(await chooseDevice('auto')).toEqual({ type: 'cpu', why: 'no WebGPU' })
})

test('where WebGPU was asked for, the error says what to do', async () => {
  const types = { x: tensorType([1]) }
  const options = { device: 'webgpu' }
  await expect(compile(({ x }) => ({ y: x.neg() }), types, options)).rejects.toMatchObject({
    code: 'gpu.unavailable',
    message: expect.stringMatching(
      /this runtime has no WebGPU \(Node, for example\)\. .*compile for the device "cpu"/,
    ),
  })
})

const software = { vendor: 'google', architecture: 'swiftshader', device: '', description: '' }
const start = 'device: "cpu" needs WebAssembly with vector instructions (SIMD), which '
const reference = 'Or choose the device "reference": that is slow.'
const onPage = 'Or choose device=reference in the address of the page: that is slow.'

test.each([
  {
    isPage: false,
    isThere: false,
    error: `this process does not have. Start Node without flags such as --jitless. ${reference}`,
  },
  {
    isPage: true,
    isThere: false,
    error: `this browser does not have. Use a newer browser. ${onPage}`,
  },
  {
    isPage: true,
    isThere: true,
    error: `this page's content security policy forbids. Allow 'wasm-unsafe-eval' in it. ${onPage}`,
  },
  {
    isPage: true,
    isThere: true,
    adapter: software,
    error: `this page's content security policy forbids. Allow 'wasm-unsafe-eval' in it. Or choose device=webgpu in the address of the page: an adapter is there. ${onPage}`,
    auto: { type: 'webgpu', why: 'no GPU, and the content security policy forbids WebAssembly' },
  },
  {
    isPage: true,
    isThere: false,
    adapter: software,
    error: `this browser does not have. Use a newer browser. Or choose device=webgpu in the address of the page: an adapter is there. ${onPage}`,
    auto: { type: 'webgpu', why: 'no GPU, and no vector instructions in WebAssembly' },
  },
])(
  'the CPU that cannot compute says why and what can: a page $isPage, vectors $isThere, adapter $adapter.vendor',
  async ({ isPage, isThere, adapter, error, auto = { type: 'cpu', why: 'no WebGPU' } }) => {
    vi.spyOn(WebAssembly, 'compile').mockRejectedValue(new Error('no'))
    vi.spyOn(WebAssembly, 'validate').mockReturnValue(isThere)
    if (isPage) vi.stubGlobal('location', {})
    if (adapter) {
      vi.stubGlobal('isSecureContext', true)
      vi.stubGlobal('navigator', { gpu: { requestAdapter: async () => ({ info: adapter }) } })
    }
    try {
      expect(await chooseDevice('auto')).toEqual(auto)
      await expect(openRuntime({ type: 'cpu', index: 0 })).rejects.toMatchObject({
        code: 'gpu.unavailable',
        message: start + error,
      })
    } finally {
      vi.restoreAllMocks()
      vi.unstubAllGlobals()
    }
  },
)

test('a CPU that gets no memory says so, and not that it has no vectors', async () => {
  const { Memory } = WebAssembly
  WebAssembly.Memory = class {
    constructor() {
      throw new RangeError('could not allocate memory')
    }
  } as unknown as typeof Memory
  try {
    await expect(openRuntime({ type: 'cpu', index: 0 })).rejects.toThrow(
      'device: "cpu" gets no memory (could not allocate memory)',
    )
  } finally {
    WebAssembly.Memory = Memory
  }
})
