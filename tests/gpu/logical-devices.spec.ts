import { afterAll, expect, test } from 'vitest'
import { compile } from '../../src/graph/compile/compile.ts'
import { gpu } from '../../src/graph/compile/gpu.ts'
import { runtimeOf } from '../../src/graph/memory/default-runtime.ts'
import { Runtime } from '../../src/graph/memory/runtime.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import { Linear } from '../../src/nn/layers.ts'
import { tensorType } from '../../src/util/shape.ts'
import { setSwitches } from '../../src/util/switches.ts'

// Two devices of one adapter, in a real browser; before anything else in this page opens one.

setSwitches({ logicalDevices: 2 })
const devices = await Promise.all([0, 1].map((index) => runtimeOf(index)))
afterAll(() => {
  for (const runtime of devices) if (runtime instanceof Runtime) runtime.gpu.close()
})

test('the list has each adapter twice, the software one once among the adapters', async () => {
  const count = await gpu.deviceCount()
  expect(count % 2).toBe(0)
  const names = await Promise.all(Array.from({ length: count }, (_, i) => gpu.getDeviceName(i)))
  const isEven = (_: string, i: number) => i % 2 === 0
  expect(names.filter((_, i) => i % 2 === 1)).toEqual(names.filter(isEven))
  expect(new Set(names.filter(isEven)).size).toBe(count / 2)
  const properties = await gpu.getDeviceProperties(count - 1)
  expect(properties.name.endsWith(' (software)')).toBe(properties.isSoftware)
})

test('they compute equal results, side by side, and share no memory', async () => {
  const [first, second] = devices as Runtime[]
  expect(first.gpu.device).not.toBe(second.gpu.device)
  expect([first.device.index, second.device.index]).toEqual([0, 1])
  const layer = new Linear(3, 2)
  const forward = ({ x }: Record<string, Tensor>) => ({ y: layer.forward(x) })
  const types = { x: tensorType([1, 3]) }
  const input = { x: Float32Array.of(1, 2, 3) }
  const onFirst = await compile(forward, types, { device: 'webgpu:0' })
  const { y } = await onFirst.run(input)
  await expect(compile(forward, types, { device: 'webgpu:1' })).rejects.toMatchObject({
    code: 'device.mismatch',
    message: expect.stringMatching(/the program runs on webgpu:1, but this tensor is on webgpu:0/),
  })
  await expect(new Linear(3, 2).to('webgpu:9')).rejects.toMatchObject({
    code: 'gpu.unavailable',
    message: expect.stringMatching(/^to: this tab has .*, but not webgpu:9/),
  })
  await layer.to('webgpu:1')
  const onSecond = await compile(forward, types, { device: 'webgpu:1' })
  expect((await onSecond.run(input)).y).toEqual(y)
  await expect(compile(forward, types, { device: 'webgpu:9' })).rejects.toMatchObject({
    code: 'gpu.unavailable',
    message: expect.stringContaining('got webgpu:9'),
  })
})

test('synchronize waits for what one device was given, whose bytes are counted', async () => {
  const [, second] = devices as Runtime[]
  let isDone = false
  const encoder = second.gpu.device.createCommandEncoder()
  const before = await gpu.memoryAllocated(1)
  const buffer = second.gpu.createBuffer('copied', 1 << 24, GPUBufferUsage.COPY_DST)
  expect(await gpu.memoryAllocated(1)).toBe(before + (1 << 24))
  expect(await gpu.memoryAllocated('reference')).toBe(0)
  encoder.clearBuffer(buffer)
  second.gpu.submit(encoder)
  second.gpu.queue.onSubmittedWorkDone().then(() => {
    isDone = true
  })
  await gpu.synchronize(1)
  expect(isDone).toBe(true)
  buffer.destroy()
  await gpu.synchronize('reference')
  await expect(gpu.synchronize(9)).rejects.toMatchObject({ code: 'gpu.unavailable' })
})
