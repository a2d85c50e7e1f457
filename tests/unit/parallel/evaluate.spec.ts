import { expect, test } from 'vitest'
import { TensorDataset } from '../../../src/data/datasets.ts'
import { evaluate } from '../../../src/ddp/metrics/evaluate-dataset.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import { Linear, ReLU } from '../../../src/nn/layers.ts'
import { Sequential } from '../../../src/nn/module.ts'
import { initDeviceMesh } from '../../../src/parallel/mesh/device-mesh.ts'
import { pipeline } from '../../../src/parallel/pipeline/pipe.ts'
import { replicate } from '../../../src/parallel/replicated/replicate.ts'
import { fullyShard } from '../../../src/parallel/sharded/fully-shard.ts'
import { parallelizeModule } from '../../../src/parallel/tensor/parallelize-module.ts'
import { ColwiseParallel, RowwiseParallel } from '../../../src/parallel/tensor/styles.ts'
import type { CollectiveGroup } from '../../../src/peer/group/collective-group.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { onRanks, resultOf } from '../../support/ranks-of-one.ts'

// Held-out samples on models that are split over ranks, on the CPU, over real message channels.

/** 3 batches of 4, the last one short: on 2 ranks one has a batch more. */
const samples = 11
const dataset = new TensorDataset({
  x: {
    shape: [samples, 6],
    data: Float32Array.from({ length: samples * 6 }, (_, i) => Math.sin(i * 1.7)),
  },
  y: { shape: [samples], data: Int32Array.from({ length: samples }, (_, i) => (i * 7) % 3) },
})
const options = { batchSize: 4, device: 'reference' } as const

function makeModel(): Sequential {
  manualSeed(7)
  return new Sequential(new Linear(6, 8), new ReLU(), new Linear(8, 3))
}

/** Splits the model; returns the ranks that have parts of a step, where `compile` must know them. */
type Split = (model: Sequential, group: ProcessGroup) => Promise<CollectiveGroup | undefined>

const ways: Record<string, readonly [size: number, split: Split]> = {
  'sharded over 2 ranks': [
    2,
    async (model, processGroup) => {
      const mesh = await initDeviceMesh('reference', [2], { processGroup })
      await fullyShard(model, { mesh })
      return undefined
    },
  ],
  'divided over 2 ranks': [
    2,
    async (model, processGroup) => {
      const mesh = await initDeviceMesh('reference', [2], { processGroup })
      await parallelizeModule(model, mesh, {
        '0': new ColwiseParallel(),
        '2': new RowwiseParallel(),
      })
      return undefined
    },
  ],
  'divided over 2 of 2 x 2 ranks': [
    4,
    async (model, processGroup) => {
      const mesh = await initDeviceMesh('reference', [2, 2], {
        meshDimNames: ['dp', 'tp'],
        processGroup,
      })
      await parallelizeModule(model, mesh.get('tp'), {
        '0': new ColwiseParallel(),
        '2': new RowwiseParallel(),
      })
      await replicate(model, { mesh: mesh.get('dp') })
      return undefined
    },
  ],
  'in a pipeline over 2 ranks': [
    2,
    async (model, group) => {
      await pipeline(model, { splitSpec: ['2'], devices: ['rank:0/reference', 'rank:1/reference'] })
      return group
    },
  ],
  'in two pipelines over 2 x 2 ranks': [
    4,
    async (model, processGroup) => {
      const mesh = await initDeviceMesh('reference', [2, 2], {
        meshDimNames: ['dp', 'pp'],
        processGroup,
      })
      await pipeline(model, { splitSpec: ['2'], devices: mesh.devices('pp') })
      await replicate(model, { mesh: mesh.get('dp') })
      return mesh.getGroup('pp')
    },
  ],
}

test.each(Object.keys(ways))('a model %s is evaluated on each sample once', async (name) => {
  const expected = await evaluate(makeModel(), dataset, options)
  expect(expected.count).toBe(samples)
  const [size, split] = ways[name]
  const all = await onRanks(size, async (group) => {
    const model = makeModel()
    const parts = await split(model, group)
    // Only a model of which every rank has other samples needs the group: there is no default one here.
    const isSharded = name.startsWith('sharded')
    return evaluate(model, dataset, {
      ...options,
      ...(parts && { group: parts }),
      ...(isSharded && { processGroup: group }),
    })
  })
  for (const { count, sums } of all.map(resultOf)) {
    expect(count).toBe(samples)
    expect(sums['correct']).toBe(expected.sums['correct'])
    expect(sums['loss']).toBeCloseTo(expected.sums['loss'], 4)
  }
})
