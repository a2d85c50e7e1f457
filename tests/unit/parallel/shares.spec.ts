import { expect, test } from 'vitest'
import { DistributedDataParallel } from '../../../src/ddp/data-parallel/data-parallel.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { crossEntropy } from '../../../src/graph/functions/losses.ts'
import { randomScalarNames } from '../../../src/graph/trace/random.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { BatchNorm1d } from '../../../src/nn/batch-norm.ts'
import { Dropout } from '../../../src/nn/dropout.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { type Module, Sequential } from '../../../src/nn/module.ts'
import { Adam } from '../../../src/optim/adam.ts'
import { initDeviceMesh } from '../../../src/parallel/mesh/device-mesh.ts'
import { replicate } from '../../../src/parallel/replicated/replicate.ts'
import { fullyShard } from '../../../src/parallel/sharded/fully-shard.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { onRanks, resultOf } from '../../support/ranks-of-one.ts'

// Ranks that see shares of a batch: what depends on the samples that a rank has.

const types = { x: tensorType([4, 6]), y: tensorType([4], 'i32') }
const inputsOf = (rank: number, step: number) => ({
  x: Float32Array.from({ length: 24 }, (_, i) => Math.sin(i + 24 * rank + 7 * step)),
  y: Int32Array.from({ length: 4 }, (_, i) => (i + rank + step) % 3),
})

type Wrap = (model: Sequential, group: ProcessGroup) => Promise<Module>

const wraps = {
  ddp: async (model, processGroup) => new DistributedDataParallel(model, { processGroup }),
  fullyShard: async (model, processGroup) =>
    fullyShard(model, { mesh: await initDeviceMesh('reference', [2], { processGroup }) }),
  'fullyShard of a layer': async (model, processGroup) => {
    const mesh = await initDeviceMesh('reference', [2], { processGroup })
    await fullyShard(model.children()[2][1], { mesh })
    return replicateRest(model, processGroup)
  },
  replicate: async (model, processGroup) =>
    replicate(model, { mesh: await initDeviceMesh('reference', [2], { processGroup }) }),
} satisfies Record<string, Wrap>

/** The first layer, which dropout follows, is sharded last. */
const replicateRest = async (model: Sequential, processGroup: ProcessGroup) =>
  fullyShard(model, { mesh: await initDeviceMesh('reference', [2], { processGroup }) })

async function train(group: ProcessGroup, wrap: Wrap, hasBatchNorm: boolean) {
  manualSeed(4)
  const model = new Sequential(
    new Linear(6, 9),
    hasBatchNorm ? new BatchNorm1d(9) : new Dropout(0.5),
    new Linear(9, 3),
  )
  // Buffers that differ, as those of a model that one rank has loaded.
  if (hasBatchNorm && group.rank === 1)
    for (const buffer of model.buffers())
      if (buffer.dtype === 'f32') buffer.assign(new Float32Array(9).fill(5))
  const wrapped = await wrap(model, group)
  const begun = await model.stateDict()
  const optimizer = new Adam(wrapped.parameters(), { lr: 0.05 })
  const step = await compile(
    ({ x, y }) => {
      optimizer.zeroGrad()
      const loss = crossEntropy(wrapped.forward(x) as Tensor, y)
      loss.backward()
      optimizer.step()
      return { loss }
    },
    types,
    { device: 'reference' },
  )
  // Ranks of one process have one counter of steps.
  const stepOf = (i: number): Record<string, number> =>
    hasBatchNorm ? {} : { [randomScalarNames.step]: i }
  for (let i = 0; i < 4; i++) await step.run(inputsOf(group.rank, i), stepOf(i))
  const state = await model.stateDict()
  step.destroy()
  return { begun, state }
}

const trainedBy = async (wrap: Wrap, hasBatchNorm = false) =>
  (await onRanks(2, (group) => train(group, wrap, hasBatchNorm))).map(resultOf)

test.each(['fullyShard', 'fullyShard of a layer', 'replicate'] as const)(
  'with %s each rank draws the dropout of the samples that it computes, as in DistributedDataParallel',
  async (name) => {
    const [expected] = await trainedBy(wraps.ddp)
    for (const { state } of await trainedBy(wraps[name])) expect(state).toEqual(expected.state)
  },
)

test.each(['fullyShard', 'replicate'] as const)(
  "with %s buffers begin with the first rank's, and its state is saved on all",
  async (name) => {
    const [first, second] = await trainedBy(wraps[name], true)
    expect(first.begun['1.running_mean'].data).toEqual(new Float32Array(9))
    expect(second.begun).toEqual(first.begun)
    expect(second.state).toEqual(first.state)
    expect(first.state['1.running_mean'].data).not.toEqual(new Float32Array(9))
  },
)
