import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { afterEach, expect, test, vi } from 'vitest'
import { type AdapterFacts, Gpu } from '../../../src/gpu/device.ts'

/** A device that makes buffers without memory. */
const device = Object.assign(new EventTarget(), {
  lost: new Promise(() => undefined),
  limits: { maxBufferSize: 1e9, maxStorageBufferBindingSize: 1e9 },
  createBuffer: ({ size }: { size: number }) => ({ size, destroy: () => undefined }),
})

afterEach(() => void vi.unstubAllGlobals())

test('bytes of a buffer come back once, when it is destroyed or when it is collected', async () => {
  vi.stubGlobal('GPUBufferUsage', { STORAGE: 128 })
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  const gpu = new Gpu(device as unknown as GPUDevice, {} as AdapterFacts)
  const kept = gpu.createBuffer('kept', 100, 0)
  // In another call: what an asynchronous function had in hand last may stay in its frame while it waits.
  const drop = () => {
    gpu.createBuffer('dropped', 1000, 0)
    gpu.createBuffer('destroyed and dropped', 10_000, 0).destroy()
  }
  drop()
  expect(gpu.usedBytes).toBe(1100)
  for (let turn = 0; turn < 100 && gpu.usedBytes > 100; turn++) {
    collect()
    await new Promise((resolve) => setTimeout(resolve))
  }
  expect(gpu.usedBytes).toBe(100)
  kept.destroy()
  kept.destroy()
  expect(gpu.usedBytes).toBe(0)
})
