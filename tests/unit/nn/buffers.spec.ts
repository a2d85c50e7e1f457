import { expect, test } from 'vitest'
import { DistributedDataParallel } from '../../../src/ddp/data-parallel/data-parallel.ts'
import { ModuleBuffer } from '../../../src/graph/trace/module-buffer.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { BatchNorm2d } from '../../../src/nn/batch-norm.ts'
import { Conv2d } from '../../../src/nn/convolution.ts'
import { Module, Sequential } from '../../../src/nn/module.ts'
import { ProcessGroup } from '../../../src/peer/group/group.ts'
import { memoryPair } from '../../../src/peer/link/memory-link.ts'
import { systemEnv } from '../../../src/util/env.ts'

const make = () => new Sequential(new Conv2d(2, 3, 1), new BatchNorm2d(3))

test("keys are PyTorch's: parameters, then buffers, then modules", async () => {
  expect(Object.keys(await make().stateDict())).toEqual([
    '0.weight',
    '0.bias',
    '1.weight',
    '1.bias',
    '1.running_mean',
    '1.running_var',
    '1.num_batches_tracked',
  ])
  expect(make().parameters().length).toBe(4)
  expect(
    make()
      .buffers()
      .map(({ name }) => name),
  ).toEqual(['1.running_mean', '1.running_var', '1.num_batches_tracked'])
})

test('state goes from one model to another, integers from either array', async () => {
  const from = make()
  const [mean, , batches] = from.buffers()
  mean.assign(Float32Array.of(1, 2, 3))
  batches.assign(Int32Array.of(7))
  const state = await from.stateDict()
  const to = make()
  to.loadStateDict({ ...state, '1.num_batches_tracked': { shape: [], data: Float32Array.of(7) } })
  expect(await to.stateDict()).toEqual(state)
})

test('a buffer that is not persistent stays out of the state dict', async () => {
  class Scaled extends Module {
    readonly scale = this.registerBuffer('scale', new ModuleBuffer([1], Float32Array.of(2)), {
      persistent: false,
    })
    forward(x: Tensor): Tensor {
      return x.mul(this.scale)
    }
  }
  const module = new Scaled()
  expect(await module.stateDict()).toEqual({})
  expect(module.buffers().length).toBe(1)
})

test("data-parallel training begins with rank 0's buffers on every rank", async () => {
  const [a, b] = memoryPair(systemEnv)
  const groups = [a, b].map(
    (link, rank) =>
      new ProcessGroup({
        rank,
        size: 2,
        epoch: 1,
        links: new Map([[1 - rank, link]]),
        env: systemEnv,
      }),
  )
  await Promise.all(groups.map((group) => group.ready()))
  const models = [make(), make()]
  const [mean, variance, batches] = models[0].buffers()
  mean.assign(Float32Array.of(1, 2, 3))
  variance.assign(Float32Array.of(4, 5, 6))
  // As a float this pattern is a NaN, which must come through.
  batches.assign(Int32Array.of(0x7fc0_0001))
  await Promise.all(
    models.map(
      (model, rank) => new DistributedDataParallel(model, { processGroup: groups[rank] }).ready,
    ),
  )
  expect(await models[1].stateDict()).toEqual(await models[0].stateDict())
  expect([...(await models[1].stateDict())['1.num_batches_tracked'].data]).toEqual([0x7fc0_0001])
  await Promise.all(groups.map((group) => group.leave()))
})
