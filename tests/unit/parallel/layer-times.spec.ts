import { expect, test } from 'vitest'
import { BatchNorm1d } from '../../../src/nn/batch-norm.ts'
import { getRngState, manualSeed } from '../../../src/nn/init.ts'
import { Linear, ReLU } from '../../../src/nn/layers.ts'
import { Sequential } from '../../../src/nn/module.ts'
import { layerTimes } from '../../../src/parallel/pipeline/layer-times.ts'
import { pipeline } from '../../../src/parallel/pipeline/pipe.ts'
import { tensorType } from '../../../src/util/shape.ts'

async function model(): Promise<Sequential> {
  manualSeed(1)
  const made = new Sequential(
    new Linear(8, 4),
    new Linear(4, 300),
    new BatchNorm1d(300),
    new Linear(300, 300),
    new ReLU(),
    new Linear(300, 2),
  )
  await made.to('reference')
  return made
}

test('layerTimes finds the layer that takes longest, and leaves the model and random numbers as they were', async () => {
  const own = await model()
  const before = await own.stateDict()
  const random = getRngState()
  const times = await layerTimes(own, tensorType([32, 8]), { repeats: 3 })
  expect(times).toHaveLength(6)
  expect(times.indexOf(Math.max(...times))).toBe(3)
  expect(await own.stateDict()).toEqual(before)
  expect(getRngState()).toEqual(random)

  const pipe = await pipeline(own, { stages: 3, balance: times, devices: ['reference'] })
  expect(pipe.stages.map(({ layers }) => layers)).toEqual([['0', '1', '2'], ['3'], ['4', '5']])
})

test('layerTimes refuses a wrong number of repeats', async () => {
  await expect(layerTimes(await model(), tensorType([4, 8]), { repeats: 0 })).rejects.toThrow(
    'layerTimes: repeats must be a whole number above 0, got 0',
  )
})
