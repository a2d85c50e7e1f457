import { describe, expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { crossEntropy } from '../../../src/graph/functions/linear.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { Module, Sequential } from '../../../src/nn/module.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { type DeviceMesh, initDeviceMesh } from '../../../src/parallel/mesh/device-mesh.ts'
import { pipeline } from '../../../src/parallel/pipeline/pipe.ts'
import { Schedule1F1B } from '../../../src/parallel/pipeline/schedule.ts'
import { replicate } from '../../../src/parallel/replicated/replicate.ts'
import { fullyShard } from '../../../src/parallel/sharded/fully-shard.ts'
import { parallelizeModule } from '../../../src/parallel/tensor/parallelize-module.ts'
import { ColwiseParallel, RowwiseParallel } from '../../../src/parallel/tensor/styles.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { onRanks, resultOf } from '../../support/ranks-of-one.ts'

// 4 ranks as a mesh [2, 2]. What goes wrong on rank 1 ends the step on all ranks, also on rank 2, which shares no group with it.

type Loss = (x: Tensor, y: Tensor) => Tensor
type Way = (model: Sequential, mesh: DeviceMesh) => Promise<Loss>

/** Where a function throws. */
type Place = 'layer' | 'loss' | 'end'

class Fragile extends Module {
  throwsAt: Place | undefined

  at(place: Place): void {
    if (place === this.throwsAt) throw new Error('no such layer')
  }

  forward(x: Tensor): Tensor {
    this.at('layer')
    return x.relu()
  }
}

const fragileOf = (model: Sequential) => [...model.modules()].find((one) => one instanceof Fragile)!

function meanLoss(model: Sequential): Loss {
  const fragile = fragileOf(model)
  return (output, y) => {
    fragile.at('loss')
    return crossEntropy(output, y)
  }
}

function unstaged(model: Sequential): Loss {
  const lossFn = meanLoss(model)
  return (x, y) => lossFn(model.forward(x) as Tensor, y)
}

async function staged(model: Sequential, mesh: DeviceMesh): Promise<Loss> {
  const pipe = await pipeline(model, { splitSpec: ['2'], devices: mesh.devices('inner') })
  const schedule = new Schedule1F1B(pipe, { microBatches: 2, lossFn: meanLoss(model) })
  return (x, y) => schedule.step(x, y).loss
}

async function shardLayers(model: Sequential, mesh: DeviceMesh): Promise<void> {
  for (const [, layer] of model.children())
    if (layer instanceof Linear) await fullyShard(layer, { mesh })
}

const ways: Record<string, Way> = {
  'pipeline x replicate': async (model, mesh) => {
    const loss = await staged(model, mesh)
    await replicate(model, { mesh: mesh.get('dp') })
    return loss
  },
  'pipeline x fullyShard': async (model, mesh) => {
    const loss = await staged(model, mesh)
    await shardLayers(model, mesh.get('dp'))
    return loss
  },
  'parallelizeModule x replicate': async (model, mesh) => {
    await parallelizeModule(model, mesh.get('inner'), {
      0: new ColwiseParallel(),
      2: new RowwiseParallel(),
    })
    await replicate(model, { mesh: mesh.get('dp') })
    return unstaged(model)
  },
  'fullyShard on two dimensions': async (model, mesh) => {
    await shardLayers(model, mesh)
    return unstaged(model)
  },
}

/** What goes wrong on a rank. */
interface Fault {
  readonly batch?: number
  readonly lr?: number
  readonly throwsAt?: Place
}

/** By rank, the error with which it compiles and runs a step. `fault`: of rank 1. `retries`: afterwards the same step runs without it. */
async function errorsOf(way: Way, fault: Fault, retries = true): Promise<string[]> {
  const ended = await onRanks(4, async (processGroup: ProcessGroup) => {
    const mesh = await initDeviceMesh('reference', [2, 2], {
      meshDimNames: ['dp', 'inner'],
      processGroup,
    })
    manualSeed(3)
    const model = new Sequential(new Linear(3, 4), new Fragile(), new Linear(4, 2))
    const loss = await way(model, mesh)
    const isStaged = [ways['pipeline x replicate'], ways['pipeline x fullyShard']].includes(way)
    const attempt = async ({ batch = 4, lr = 0.1, throwsAt }: Fault) => {
      fragileOf(model).throwsAt = throwsAt
      const optimizer = new SGD(model.parameters(), { lr })
      const step = await compile(
        ({ x, y }) => {
          optimizer.zeroGrad()
          const made = loss(x, y)
          if (!isStaged) made.backward()
          optimizer.step()
          fragileOf(model).at('end')
          return { loss: made }
        },
        { x: tensorType([batch, 3]), y: tensorType([batch], 'i32') },
        { device: 'reference', ...(isStaged && { group: mesh.getGroup('inner') }) },
      )
      await step.run({ x: new Float32Array(batch * 3), y: new Int32Array(batch) })
    }
    const error = await attempt(processGroup.rank === 1 ? fault : {}).then(
      () => 'no error',
      ({ message }: Error) => message,
    )
    if (retries) await attempt({})
    return error
  })
  return ended.map(resultOf)
}

describe('all ranks of a mesh end, and can compile again', () => {
  test.each(
    Object.keys(ways).flatMap((name) =>
      (['layer', 'loss', 'end'] as const).map((throwsAt) => ({ name, throwsAt })),
    ),
  )('when the function throws on one: $name, $throwsAt', async ({ name, throwsAt }) => {
    for (const error of await errorsOf(ways[name], { throwsAt }))
      expect(error).toContain('no such layer')
  })

  test.each(Object.keys(ways).slice(0, 3))('when one has another batch size: %s', async (name) => {
    for (const error of await errorsOf(ways[name], { batch: 8 }))
      expect(error).toContain('ranks disagree about the step')
  })
})

test('all ranks of a mesh end when the last group that compares the step disagrees', async () => {
  for (const error of await errorsOf(ways['pipeline x replicate'], { lr: 0.2 }, false))
    expect(error).toMatch(/ranks disagree about the step: SGD.* lr 0\.2/)
})

test('replicas end when the loss throws on one', async () => {
  const ended = await onRanks(2, async (processGroup) => {
    const mesh = await initDeviceMesh('reference', [2], { processGroup })
    const model = await replicate(new Sequential(new Linear(3, 2)), { mesh })
    const optimizer = new SGD(model.parameters(), { lr: 0.1 })
    await compile(
      ({ x }) => {
        const y = model.forward(x) as Tensor
        if (processGroup.rank === 1) throw new Error('no such loss')
        y.mean().backward()
        optimizer.step()
        return {}
      },
      { x: tensorType([4, 3]) },
      { device: 'reference' },
    )
  })
  for (const one of ended) expect(() => resultOf(one)).toThrow('no such loss')
})
