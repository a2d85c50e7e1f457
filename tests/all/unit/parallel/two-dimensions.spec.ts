import { describe, expect, test } from 'vitest'
import { compile } from '../../../../src/graph/compile/compile.ts'
import { crossEntropy } from '../../../../src/graph/functions/losses.ts'
import type { Tensor } from '../../../../src/graph/trace/tensor.ts'
import { type Gpt, gpt } from '../../../../src/nn/gpt.ts'
import { manualSeed } from '../../../../src/nn/init.ts'
import type { StateDict } from '../../../../src/nn/module.ts'
import { clipGradNorm } from '../../../../src/optim/clip.ts'
import { SGD } from '../../../../src/optim/sgd.ts'
import { type DeviceMesh, initDeviceMesh } from '../../../../src/parallel/mesh/device-mesh.ts'
import { pipeline } from '../../../../src/parallel/pipeline/pipe.ts'
import { Schedule1F1B } from '../../../../src/parallel/pipeline/schedule.ts'
import { replicate } from '../../../../src/parallel/replicated/replicate.ts'
import { fullyShard } from '../../../../src/parallel/sharded/fully-shard.ts'
import { parallelizeModule } from '../../../../src/parallel/tensor/parallelize-module.ts'
import { ColwiseParallel, RowwiseParallel } from '../../../../src/parallel/tensor/styles.ts'
import type { ProcessGroup } from '../../../../src/peer/group/group.ts'
import { tensorType } from '../../../../src/util/shape.ts'
import { onRanks, resultOf } from '../../../support/ranks-of-one.ts'

// 4 ranks of one process, on the CPU, as a grid of 2 by 2: against one rank with all samples.

const config = { vocabSize: 11, blockSize: 5, layers: 2, heads: 2, width: 6 }
const samples = 2
const typesOf = (count: number) => ({
  x: tensorType([count, config.blockSize], 'i32'),
  y: tensorType([count, config.blockSize], 'i32'),
})
/** The samples of shares [first, first + count). */
const inputsOf = (first: number, count: number, step: number) => {
  const elements = samples * config.blockSize
  const made = (factor: number) =>
    Int32Array.from(
      { length: count * elements },
      (_, i) => ((((first * elements + i) * factor) % 101) + step) % config.vocabSize,
    )
  return { x: made(7), y: made(5) }
}
const lossOf = (logits: Tensor, y: Tensor) =>
  crossEntropy(logits.reshape([-1, config.vocabSize]), y.reshape([-1]))

type Step = (x: Tensor, y: Tensor) => Tensor

const whole =
  (model: Gpt): Step =>
  (x, y) => {
    const loss = lossOf(model.forward(x), y)
    loss.backward()
    return loss
  }

async function staged(model: Gpt, devices: readonly string[]): Promise<Step> {
  const pipe = await pipeline(model, { splitSpec: ['transformer.h.1'], devices })
  const schedule = new Schedule1F1B(pipe, { microBatches: 2, lossFn: lossOf })
  return (x, y) => schedule.step(x, y).loss!
}

/** Divides the layers along a mesh, then what is left. */
async function shardLayers(model: Gpt, mesh: DeviceMesh): Promise<void> {
  for (const block of model.transformer.h) await fullyShard(block, { mesh })
  await fullyShard(model, { mesh })
}

interface Way {
  readonly names: readonly string[]
  /** Into how many the samples are divided. */
  readonly shares: number
  /** Which share of the samples a rank sees. */
  readonly share: (mesh: DeviceMesh) => number
  readonly make: (model: Gpt, mesh: DeviceMesh) => Promise<Step>
  /** The dimension along which a step is divided, if any. */
  readonly splitAlong?: string
}

async function train(
  way: Way,
  shareCount: number,
  processGroup?: ProcessGroup,
): Promise<{ state: StateDict; losses: number[]; share: number }> {
  const mesh =
    processGroup &&
    (await initDeviceMesh('reference', [2, 2], { meshDimNames: way.names, processGroup }))
  const share = mesh ? way.share(mesh) : 0
  // Ranks that see the same samples begin with the same values; the first of those that see others counts.
  manualSeed(3 + share)
  const model = gpt(config)
  const step = mesh ? await way.make(model, mesh) : whole(model)
  const optimizer = new SGD(model.parameters(), { lr: 0.5, momentum: 0.9 })
  const split = mesh && way.splitAlong
  const program = await compile(
    ({ x, y }) => {
      optimizer.zeroGrad()
      const loss = step(x, y)
      clipGradNorm(model.parameters(), 0.3)
      optimizer.step()
      return { loss }
    },
    typesOf(samples * shareCount),
    { device: 'reference', ...(split && { group: mesh.getGroup(split) }) },
  )
  const losses: number[] = []
  for (let i = 0; i < 3; i++) {
    const outputs: { loss?: ArrayLike<number> } = await program.run(inputsOf(share, shareCount, i))
    if (outputs.loss) losses.push(outputs.loss[0])
  }
  return { state: await model.stateDict(), losses, share }
}

function distance(a: StateDict, b: StateDict): number {
  return Math.max(
    ...Object.entries(a).flatMap(([key, { data }]) =>
      Array.from(data, (value, i) => Math.abs(value - b[key].data[i])),
    ),
  )
}

const ways: Record<string, Way> = {
  'data parallel x pipeline': {
    names: ['dp', 'pp'],
    shares: 2,
    share: (mesh) => mesh.getLocalRank('dp'),
    make: async (model, mesh) => {
      const step = await staged(model, mesh.devices('pp'))
      await replicate(model, { mesh: mesh.get('dp') })
      return step
    },
    splitAlong: 'pp',
  },
  'fully sharded x pipeline': {
    names: ['shard', 'pp'],
    shares: 2,
    share: (mesh) => mesh.getLocalRank('shard'),
    make: async (model, mesh) => {
      const step = await staged(model, mesh.devices('pp'))
      await shardLayers(model, mesh.get('shard'))
      return step
    },
    splitAlong: 'pp',
  },
  'pipeline x tensor parallel': {
    names: ['pp', 'tp'],
    shares: 1,
    share: () => 0,
    make: async (model, mesh) => {
      await parallelizeModule(model, mesh.get('tp'), {
        'transformer.h.*.attn.c_attn': new ColwiseParallel(),
        'transformer.h.*.attn.c_proj': new RowwiseParallel(),
        'transformer.h.*.mlp.c_fc': new ColwiseParallel(),
        'transformer.h.*.mlp.c_proj': new RowwiseParallel(),
      })
      return staged(model, mesh.devices('pp'))
    },
    splitAlong: 'pp',
  },
  'replicas of shards': {
    names: ['dp', 'shard'],
    shares: 4,
    share: (mesh) => mesh.getLocalRank('dp') * 2 + mesh.getLocalRank('shard'),
    make: async (model, mesh) => {
      await shardLayers(model, mesh)
      return whole(model)
    },
  },
  'replicas alone': {
    names: ['dp', 'other'],
    shares: 2,
    share: (mesh) => mesh.getLocalRank('dp'),
    make: async (model, mesh) => {
      await replicate(model, { mesh: mesh.get('dp') })
      return whole(model)
    },
  },
}

describe('4 ranks', () => {
  test.each(Object.keys(ways))('%s trains as one rank with all samples', async (name) => {
    const way = ways[name]
    const count = way.shares
    const alone = await train(way, count)
    const ranks = (await onRanks(4, (group) => train(way, 1, group))).map(resultOf)
    const [{ state }] = ranks
    for (const rank of ranks) expect(rank.state).toEqual(state)
    expect(Object.keys(state)).toEqual(Object.keys(alone.state))
    expect(distance(alone.state, state)).toBeLessThan(3e-6)
    const shareLosses = Array.from(
      { length: count },
      (_, share) => ranks.find((rank) => rank.share === share && rank.losses.length > 0)!.losses,
    )
    for (const [i, loss] of alone.losses.entries()) {
      const mean = shareLosses.reduce((sum, own) => sum + own[i], 0) / count
      expect(Math.abs(mean - loss)).toBeLessThan(3e-6)
    }
  })
})
