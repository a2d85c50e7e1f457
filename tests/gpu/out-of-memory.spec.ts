import { expect, test } from 'vitest'
import { openGpu } from '../../src/gpu/device.ts'
import { compile } from '../../src/graph/compile/compile.ts'
import { gpu as gpus } from '../../src/graph/compile/gpu.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import { bytesOf, tensorType } from '../../src/util/shape.ts'
import { testRuntime } from '../support/run-op.ts'

// A program whose tensors are each within the adapter's limits, and together more than its memory holds.

test("a program that exceeds the device's memory is refused with its largest ops, and the device stays usable", async () => {
  const runtime = await testRuntime()
  const { gpu, limits } = runtime
  // The software adapter has less free than one tensor of the largest size; no graphics card has 256 GiB.
  const side = Math.floor(Math.sqrt(limits.maxBufferBytes! / 4))
  const square = tensorType([side, side])
  const count = gpu.facts.isSoftware ? 1 : Math.ceil(2 ** 38 / bytesOf(square))
  const names = Array.from({ length: count }, (_, i) => `x${i}`)
  const product = (inputs: Record<string, Tensor>) => {
    let all = inputs.x0.exp()
    for (const name of names) all = all.matmul(inputs[name])
    return { total: all.sum() }
  }
  const types = Object.fromEntries(names.map((name) => [name, square]))
  const refusal = await compile(product, types, { runtime }).then(
    () => undefined,
    (error: unknown) => error,
  )
  const of = `f32\\[${side}, ${side}\\]`
  expect(refusal).toMatchObject({
    code: 'gpu.limit',
    message: expect.stringMatching(
      new RegExp(
        `^device: the program needs \\d+ bytes in addition to parameters and optimizer state, which are not available\\. Use a smaller batch.*Its largest tensors: exp\\(${of}\\) with ${bytesOf(square)} bytes, matmul\\(${of}, ${of}\\) with ${bytesOf(square)} bytes`,
      ),
    ),
  })
  const bytes = Number(/needs (\d+) bytes/.exec((refusal as Error).message)?.[1])
  // The inputs, and two results at a time.
  expect(bytes).toBeGreaterThanOrEqual((count + 2) * bytesOf(square))

  const small = await compile(({ x }) => ({ y: x.exp() }), { x: tensorType([2]) }, { runtime })
  expect([...(await small.run({ x: Float32Array.of(0, 0) })).y]).toEqual([1, 1])
  small.destroy()
  gpu.check()
})

test("a buffer that exceeds the device's memory is reported as out of memory, not as a rejected command", async () => {
  const gpu = await openGpu()
  const size = Math.min(gpu.limits.maxBufferSize, gpu.limits.maxStorageBufferBindingSize)
  const count = gpu.facts.isSoftware ? 1 : Math.ceil(2 ** 38 / size)
  const buffers = Array.from({ length: count }, (_, i) =>
    gpu.createBuffer(`part ${i}`, size, GPUBufferUsage.STORAGE),
  )
  await expect(gpu.wait(gpu.queue.onSubmittedWorkDone())).rejects.toMatchObject({
    code: 'gpu.limit',
    message: expect.stringMatching(/^device: out of memory: .*smaller model/s),
  })
  for (const buffer of buffers) buffer.destroy()
  gpu.close()
})

test('a buffer that would pass the cap is refused in the units of the cap, with the ways to split', async () => {
  const device = await openGpu()
  gpus.setMemoryCap('1MB')
  try {
    const first = device.createBuffer('first', 250_000, GPUBufferUsage.STORAGE)
    expect(() => device.createBuffer('second', 900_000, GPUBufferUsage.STORAGE)).toThrow(
      'device: "second" needs 0.9MB, and 0.25MB of the memory cap of 1MB are taken. Split the model over more ranks (pipeline or fullyShard; in the built-in training --parallel pp=2 or fsdp)',
    )
    first.destroy()
  } finally {
    gpus.setMemoryCap(null)
    device.close()
  }
})
