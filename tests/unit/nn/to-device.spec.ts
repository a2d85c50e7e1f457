import { expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { BatchNorm1d } from '../../../src/nn/batch-norm.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { Sequential } from '../../../src/nn/module.ts'
import { tensorType } from '../../../src/util/shape.ts'

test.each(['f16', 'float32', 'half'])(
  'to(%j) is refused with what changes a type',
  async (type) => {
    const text = /^to: device must be a device .*\(a type changes by half\(\) and float\(\)\), got /
    await expect(new Linear(1, 1).to(type)).rejects.toThrow(text)
  },
)

test('a module that no device holds is moved when to() returns, awaited or not', async () => {
  const layer = new BatchNorm1d(3)
  const tensors = [...layer.parameters(), ...layer.buffers()]
  expect(tensors.map(({ device }) => device)).toEqual(tensors.map(() => undefined))
  const moving = layer.to('webgpu:1')
  for (const { device } of tensors) expect(device).toEqual({ type: 'webgpu', index: 1 })
  expect(await moving).toBe(layer)
  await expect(
    compile(
      ({ x }) => ({ y: layer.forward(x) }),
      { x: tensorType([2, 3]) },
      { device: 'reference' },
    ),
  ).rejects.toMatchObject({ code: 'device.mismatch' })
})

test.each([false, true])(
  'contents move along between devices, nonBlocking: %s',
  async (nonBlocking) => {
    const layer = new BatchNorm1d(3)
    const program = await compile(
      ({ x }) => ({ y: layer.forward(x) }),
      { x: tensorType([2, 3]) },
      { device: 'reference' },
    )
    await program.run({ x: Float32Array.of(1, 2, 3, 5, 6, 7) })
    const before = await layer.stateDict()
    expect([...before.running_mean.data]).not.toEqual([0, 0, 0])
    expect(await layer.to('webgpu', { nonBlocking })).toBe(layer)
    expect(await layer.stateDict()).toEqual(before)
    expect(layer.parameters()[0].device?.type).toBe('webgpu')
  },
)

test('a move returns the tensor itself where it is, else a new one of its class', async () => {
  const layer = new BatchNorm1d(3)
  await layer.cpu()
  const [weight] = layer.parameters()
  weight.requiresGrad = false
  const [mean] = layer.buffers()
  for (const tensor of [weight, mean]) {
    expect(await tensor.cpu()).toBe(tensor)
    const copy = await tensor.webgpu(1)
    expect(copy.constructor).toBe(tensor.constructor)
    expect([copy.device, tensor.device?.type]).toEqual([{ type: 'webgpu', index: 1 }, 'cpu'])
    copy.assign(new Float32Array(3).fill(7))
    expect(await tensor.read()).not.toEqual(await copy.read())
  }
  expect((await weight.webgpu()).requiresGrad).toBe(false)
})

test('errors have the outermost names when nothing has listed the model', async () => {
  const model = new Sequential(new Sequential(new BatchNorm1d(3)))
  await model.at(0).to('webgpu:1')
  await expect(
    compile(
      ({ x }) => ({ y: model.forward(x) }),
      { x: tensorType([2, 3]) },
      { device: 'reference' },
    ),
  ).rejects.toThrow('("0.0.weight")')
})
