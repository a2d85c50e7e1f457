import { expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { crossEntropy } from '../../../src/graph/functions/losses.ts'
import { BatchNorm1d } from '../../../src/nn/batch-norm.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { Sequential } from '../../../src/nn/module.ts'
import { SyncBatchNorm } from '../../../src/nn/sync-batch-norm.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { initDeviceMesh } from '../../../src/parallel/mesh/device-mesh.ts'
import { replicate } from '../../../src/parallel/replicated/replicate.ts'
import { fullyShard } from '../../../src/parallel/sharded/fully-shard.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { onRanks, resultOf } from '../../support/ranks-of-one.ts'

// Statistics of a process group, in a model that no DistributedDataParallel wraps.

const rows = 8
const x = Float32Array.from({ length: rows * 3 }, (_, i) => Math.sin(i) + (i > 12 ? 2 : 0))
const y = Int32Array.from({ length: rows }, (_, i) => i % 2)

type Way = 'fullyShard' | 'replicate' | 'fullyShard of the last layer'

/** The state after 3 steps on this rank's rows, or on all of them. */
async function train(way?: Way, processGroup?: ProcessGroup) {
  manualSeed(5)
  const model = new Sequential(new BatchNorm1d(3), new Linear(3, 4), new Linear(4, 2))
  if (processGroup) {
    SyncBatchNorm.convertSyncBatchnorm(model, processGroup)
    const mesh = await initDeviceMesh('reference', [2], { processGroup })
    if (way === 'replicate') await replicate(model, { mesh })
    else if (way === 'fullyShard') await fullyShard(model, { mesh })
    else {
      for (const i of [0, 1]) model.at(i).requiresGrad_(false)
      await fullyShard(model.at(2), { mesh })
    }
  }
  const optimizer = new SGD(model.parameters(), { lr: 0.5 })
  const own = rows / (processGroup?.size ?? 1)
  const first = (processGroup?.rank ?? 0) * own
  const step = await compile(
    ({ x, y }) => {
      optimizer.zeroGrad()
      const loss = crossEntropy(model.forward(x), y)
      loss.backward()
      optimizer.step()
      return { loss }
    },
    { x: tensorType([own, 3]), y: tensorType([own], 'i32') },
    { device: 'reference' },
  )
  const inputs = {
    x: x.slice(first * 3, (first + own) * 3),
    y: y.slice(first, first + own),
  }
  for (let i = 0; i < 3; i++) await step.run(inputs)
  step.destroy()
  return model.stateDict()
}

test.each(['fullyShard', 'replicate'] as const)(
  'SyncBatchNorm with a processGroup normalizes by the samples of all ranks when the model is in %s',
  async (way) => {
    const whole = await train()
    for (const state of (await onRanks(2, (group) => train(way, group))).map(resultOf)) {
      expect(Object.keys(state)).toEqual(Object.keys(whole))
      for (const [key, { data }] of Object.entries(whole))
        for (const [i, value] of data.entries())
          expect(state[key].data[i], key).toBeCloseTo(value, 5)
    }
  },
)

test('SyncBatchNorm is refused when it runs before the first layer that ranks share', async () => {
  const ended = await onRanks(2, (group) => train('fullyShard of the last layer', group))
  for (const one of ended)
    expect(one).toMatchObject({
      reason: {
        code: 'graph.misuse',
        message: expect.stringContaining('runs before the first layer that ranks share'),
      },
    })
})
