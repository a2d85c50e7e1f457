import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { saveCheckpoint } from '../../../src/ddp/checkpoint/checkpoint.ts'
import {
  DistributedDataParallel,
  type DistributedDataParallelOptions,
} from '../../../src/ddp/data-parallel/data-parallel.ts'
import * as dist from '../../../src/entries/distributed.ts'
import { Linear, ReLU } from '../../../src/nn/layers.ts'

// What may be wrapped, and for which device.

beforeAll(() => dist.initProcessGroup({ rank: 0, worldSize: 1, links: new Map() }))
afterAll(() => dist.destroyProcessGroup())

const wrap = (module = new Linear(3, 2), options: DistributedDataParallelOptions = {}) =>
  new DistributedDataParallel(module, options)

test('a module that learns nothing is refused, as in PyTorch', async () => {
  expect(() => new DistributedDataParallel(new ReLU())).toThrow(
    /DistributedDataParallel: no parameter of this module requires a gradient/,
  )
  const frozen = new Linear(3, 2)
  frozen.requiresGrad_(false)
  expect(() => wrap(frozen)).toThrow(/no parameter of this module requires a gradient/)
  frozen.weight.requiresGrad = true
  await wrap(frozen).ready
  expect(() => wrap(5 as never)).toThrow(/expected a module, got the number 5/)
})

describe('deviceIds and outputDevice', () => {
  test('of the device that the parameters are on, in every form', async () => {
    for (const deviceIds of [[0], ['webgpu:0'], [{ type: 'webgpu', index: 0 }]] as const) {
      const module = new Linear(3, 2)
      await module.to(0)
      await wrap(module, { deviceIds, outputDevice: 0 }).ready
    }
    await wrap(new Linear(3, 2), { deviceIds: [], outputDevice: null }).ready
    await wrap(new Linear(3, 2), { deviceIds: null }).ready
  })

  test('parameters that no device holds yet are sent there', async () => {
    const module = new Linear(3, 2)
    await wrap(module, { deviceIds: [1] }).ready
    expect(module.weight.device).toEqual({ type: 'webgpu', index: 1 })
    expect(module.bias?.device).toEqual({ type: 'webgpu', index: 1 })
  })

  const on = async (device: number | 'reference') => {
    const module = new Linear(3, 2)
    await module.to(device)
    return module
  }

  test.each<[number | 'reference', DistributedDataParallelOptions, RegExp]>([
    [0, { deviceIds: [0, 1] }, /deviceIds with one device, or none, got 2\. A rank trains on one/],
    [0, { deviceIds: [3] }, /on webgpu:3, .* got parameter "weight" on webgpu:0\. .* with to\(3\)/],
    ['reference', { deviceIds: [0] }, /on webgpu:0, .* got parameter "weight" on reference/],
    ['reference', { deviceIds: ['reference'] }, /a WebGPU device in deviceIds, got reference/],
    [0, { deviceIds: 0 as never }, /deviceIds must be an array of one device, got the number 0/],
    [0, { deviceIds: ['cuda:0'] }, /device: spec must be "webgpu", /],
    [0, { outputDevice: 0 }, /no outputDevice without deviceIds, got webgpu:0/],
    [
      0,
      { deviceIds: [0], outputDevice: 1 },
      /outputDevice to be webgpu:0, as in deviceIds, got webgpu:1/,
    ],
  ])('parameters on %s, options %j: the reason is named', async (device, options, text) => {
    const module = await on(device)
    expect(() => wrap(module, options)).toThrow(text)
  })
})

test('DistributedDataParallel and saveCheckpoint throw on a rank outside of the group', async () => {
  const processGroup = dist.GroupMember.NON_GROUP_MEMBER as never
  expect(() => wrap(new Linear(3, 2), { processGroup })).toThrow(
    /DistributedDataParallel: this rank is not in the processGroup \(GroupMember/,
  )
  await expect(saveCheckpoint({ step: 1 }, { processGroup })).rejects.toThrow(
    /saveCheckpoint: this rank is not in the processGroup/,
  )
})
