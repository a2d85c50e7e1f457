import { afterAll, afterEach, beforeEach, expect, test, vi } from 'vitest'

// The specs after this one in the same worker load their modules again.
afterAll(() => vi.resetModules())

// Six adapters that can be opened, in place of the browser's.
const limits = { maxBufferSize: 1024, maxStorageBufferBindingSize: 1024 }
const adapters = Array.from({ length: 6 }, (_, number) => ({
  info: { vendor: 'test', architecture: '', device: '', description: `adapter ${number}` },
  features: new Set<string>(),
  limits,
  requestDevice: async () => ({
    limits,
    features: new Set<string>(),
    lost: new Promise(() => undefined),
    addEventListener: () => undefined,
  }),
}))
vi.mock('../../../src/gpu/adapters.ts', async (original) => ({
  ...(await original<typeof import('../../../src/gpu/adapters.ts')>()),
  listAdapters: async (max = adapters.length) => adapters.slice(0, max),
}))

const received = vi.spyOn(console, 'info').mockImplementation(() => undefined)
beforeEach(() => received.mockClear())
afterEach(() => {
  vi.unstubAllGlobals()
  vi.unstubAllEnvs()
})

/** The library as a page or worker loads it that has this address. */
async function load(search = '') {
  vi.stubGlobal('location', { search })
  vi.resetModules()
  const { gpu } = await import('../../../src/graph/compile/gpu.ts')
  const { runtimeOf } = await import('../../../src/graph/memory/default-runtime.ts')
  const { Linear } = await import('../../../src/nn/layers.ts')
  /** Which of the six each device is. */
  const seen = async () => {
    const count = await gpu.deviceCount()
    const names = Array.from({ length: count }, (_, index) => gpu.getDeviceName(index))
    return (await Promise.all(names)).map((name) => Number(name.slice('adapter '.length)))
  }
  return { gpu, runtimeOf, Linear, seen }
}

test.each([
  // The five rows that document CUDA_VISIBLE_DEVICES; the third has the shell's quotes.
  ['1', [1]],
  ['0,1', [0, 1]],
  ['"0,1"', [0, 1]],
  ['0,2,3', [0, 2, 3]],
  ['""', []],
  ['', []],
  ['3,1', [3, 1]],
  ["'0, 2'", [0, 2]],
  // Those from the first on that does not exist are hidden.
  ['2,9,1', [2]],
  ['-1', []],
  ['4,-1,2', [4]],
])('%s shows devices %j, renumbered, in code, address and launcher', async (visible, expected) => {
  const { gpu, seen } = await load()
  gpu.setVisibleDevices(visible)
  expect(await seen()).toEqual(expected)
  expect(await gpu.isAvailable()).toBe(expected.length > 0)
  const physical = expected.map((_, index) => gpu.getDeviceProperties(index))
  expect((await Promise.all(physical)).map(({ physicalIndex }) => physicalIndex)).toEqual(expected)
  expect(await (await load(`?visibleDevices=${encodeURIComponent(visible)}`)).seen()).toEqual(
    expected,
  )
  const words = JSON.stringify({ visibleDevices: visible })
  expect(await (await load(`?launcher=${encodeURIComponent(words)}`)).seen()).toEqual(expected)
})

test('webgpu:1 of "2,3,4,5" is device 3', async () => {
  const { gpu, runtimeOf, seen } = await load()
  expect(await seen()).toEqual([0, 1, 2, 3, 4, 5])
  expect((await gpu.getDeviceProperties('webgpu:5')).physicalIndex).toBe(5)
  gpu.setVisibleDevices('2,3,4,5')
  expect(await gpu.getDeviceProperties('webgpu:1')).toMatchObject({
    name: 'adapter 3',
    physicalIndex: 3,
  })
  const runtime = await runtimeOf('webgpu:1')
  expect(runtime.facts.description).toBe('adapter 3')
  expect(runtime.device).toEqual({ type: 'webgpu', index: 1 })
  await expect(runtimeOf(4)).rejects.toThrow('expected webgpu:0 to webgpu:3, got webgpu:4')
})

test('logical devices are numbered adapter by adapter, and visibleDevices chooses among them', async () => {
  expect(await (await load('?logicalDevices=2&visibleDevices=0,1,3')).seen()).toEqual([0, 0, 1])
  const { runtimeOf, seen } = await load('?logicalDevices=3')
  expect(await seen()).toEqual([0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5])
  const runtime = await runtimeOf('webgpu:4')
  expect(runtime.facts.description).toBe('adapter 1')
  expect(runtime.device).toEqual({ type: 'webgpu', index: 4 })
  const { gpu } = await import('../../../src/graph/compile/gpu.ts')
  expect((await gpu.getDeviceProperties('webgpu:4')).physicalIndex).toBe(4)
  const { setSwitches } = await import('../../../src/util/switches.ts')
  expect(() => setSwitches({ logicalDevices: 2 })).toThrow(
    'logicalDevices is in use, too late for 2',
  )
  expect(() => setSwitches({ logicalDevices: 0 })).toThrow(
    'logicalDevices must be a whole number of at least 1',
  )
})

test('opening a device fails with the reason when all are hidden', async () => {
  const { gpu, runtimeOf } = await load()
  gpu.setVisibleDevices('')
  await expect(runtimeOf('webgpu')).rejects.toMatchObject({
    code: 'gpu.unavailable',
    message: expect.stringContaining('visibleDevices is "", and this browser has 6 devices'),
  })
  expect((await runtimeOf('cpu')).device.type).toBe('cpu')
})

test('a number or a list is a TypeError with a code, like all errors of the library', async () => {
  const { gpu } = await load()
  const { TabringError } = await import('../../../src/util/errors.ts')
  for (const [wrong, words] of [
    [0, 'gpu.setVisibleDevices: expected a string like "0,2", got the number 0. Put it in quotes.'],
    [[0, 2], 'got a plain array of 2'],
  ] as const) {
    const set = () => gpu.setVisibleDevices(wrong as unknown as string)
    expect(set).toThrow(TypeError)
    expect(set).toThrow(TabringError)
    expect(set).toThrow(words)
    expect(set).toThrow(expect.objectContaining({ code: 'config.invalid' }))
  }
})

test('a text of something else is refused', async () => {
  const { gpu } = await load()
  for (const [wrong, words] of [
    ['0;2', 'visibleDevices must be distinct device numbers'],
    ['1,1', 'visibleDevices must be distinct device numbers'],
    ['1;2', 'got "1;2"'],
    ['-', 'got "-"'],
    ['"0', 'got "\\"0"'],
  ] as const) {
    expect(() => gpu.setVisibleDevices(wrong)).toThrow(words)
  }
})

test('the CPU has no properties of a GPU', async () => {
  const { gpu } = await load()
  for (const ask of [gpu.getDeviceName, gpu.getDeviceProperties, gpu.isFloat16Supported]) {
    for (const cpu of ['cpu', { type: 'cpu' }] as const) {
      await expect(ask(cpu)).rejects.toMatchObject({
        code: 'config.invalid',
        message:
          'gpu: device properties exist for WebGPU devices only, not for cpu. Pass "webgpu:0".',
      })
    }
  }
})

test('visibleDevices cannot be set after a device was opened', async () => {
  const { gpu, runtimeOf } = await load()
  gpu.setVisibleDevices('1')
  await runtimeOf('webgpu')
  expect(() => gpu.setVisibleDevices('0')).toThrow('visibleDevices is in use, too late for 0')
})

test('code overrides the page parameter, the parameter the launcher, the launcher the default', async () => {
  const words = `launcher=${encodeURIComponent('{"visibleDevices":"3"}')}`
  expect(await (await load()).seen()).toEqual([0, 1, 2, 3, 4, 5])
  expect(received).not.toHaveBeenCalled()
  expect(await (await load(`?${words}`)).seen()).toEqual([3])
  expect(await (await load(`?visibleDevices=2&${words}`)).seen()).toEqual([2])
  received.mockClear()
  const { gpu, seen } = await load(`?visibleDevices=2&${words}`)
  gpu.setVisibleDevices('1')
  expect(await seen()).toEqual([1])
  expect(await seen()).toEqual([1])
  expect(received.mock.calls).toEqual([
    ['tabring switches: visibleDevices=1 (code over 2 of page parameter over 3 of launcher)'],
  ])
})

test("the environment of a process counts as the launcher's value", async () => {
  vi.stubEnv('TABRING_VISIBLE_DEVICES', '4')
  expect(await (await load()).seen()).toEqual([4])
})

test('webgpu is the device that setDevice chose; an explicit one overrides it', async () => {
  const { gpu, runtimeOf, Linear } = await load('?visibleDevices=5,4')
  const layer = new Linear(2, 2)
  gpu.setDevice(1)
  expect(gpu.currentDevice()).toBe(1)
  expect((await runtimeOf('webgpu')).facts.description).toBe('adapter 4')
  expect((await runtimeOf({ type: 'webgpu' })).device.index).toBe(1)
  expect((await runtimeOf('webgpu:0')).facts.description).toBe('adapter 5')
  expect(await gpu.getDeviceName('webgpu')).toBe('adapter 4')
  await layer.to('webgpu')
  expect(layer.weight.device).toEqual({ type: 'webgpu', index: 1 })
  expect(() => gpu.setDevice('webgpu')).toThrow('"webgpu" has no index')
})
