import { expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { crossEntropy } from '../../../src/graph/functions/losses.ts'
import { BatchNorm1d } from '../../../src/nn/batch-norm.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { Sequential } from '../../../src/nn/module.ts'
import { Adam } from '../../../src/optim/adam.ts'
import { ExponentialMovingAverage } from '../../../src/optim/ema.ts'
import type { EmaState } from '../../../src/optim/ema-state.ts'
import { initDeviceMesh } from '../../../src/parallel/mesh/device-mesh.ts'
import { pipeline } from '../../../src/parallel/pipeline/pipe.ts'
import { ScheduleGPipe } from '../../../src/parallel/pipeline/schedule.ts'
import { fullyShard } from '../../../src/parallel/sharded/fully-shard.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { onRanks, resultOf } from '../../support/ranks-of-one.ts'

// Running averages of a model that ranks divide: their state is that of the whole model.

const types = { x: tensorType([4, 6]), y: tensorType([4], 'i32') }
const inputs = {
  x: Float32Array.from({ length: 24 }, (_, i) => Math.sin(i)),
  y: Int32Array.from({ length: 4 }, (_, i) => i % 3),
}

const makeModel = () => {
  manualSeed(2)
  return new Sequential(new Linear(6, 7), new BatchNorm1d(7), new Linear(7, 3))
}

type Kind = 'whole' | 'sharded' | 'pipelined'

async function train(kind: Kind, steps: number, from?: EmaState, group?: ProcessGroup) {
  const model = makeModel()
  if (kind === 'sharded')
    await fullyShard(model, {
      mesh: await initDeviceMesh('reference', [2], { processGroup: group! }),
    })
  const pipe =
    kind === 'pipelined'
      ? await pipeline(model, {
          splitSpec: ['1'],
          devices: ['rank:0/reference', 'rank:1/reference'],
        })
      : undefined
  const optimizer = new Adam(model.parameters(), { lr: 0.05 })
  const ema = new ExponentialMovingAverage(model, { decay: 0.5, useBuffers: true })
  if (from) ema.loadStateDict(from)
  const step = await compile(
    ({ x, y }) => {
      optimizer.zeroGrad()
      const schedule = pipe && new ScheduleGPipe(pipe, { microBatches: 1, lossFn: crossEntropy })
      const loss = schedule ? schedule.step(x, y).loss : crossEntropy(model.forward(x), y)
      if (!schedule) loss.backward()
      optimizer.step()
      ema.update()
      return { loss }
    },
    types,
    { device: 'reference', ...(pipe && { group: group! }) },
  )
  for (let i = 0; i < steps; i++) await step.run(inputs)
  const state = await ema.stateDict()
  step.destroy()
  return state
}

const onTwo = async (kind: Kind, steps: number, from?: EmaState) =>
  (await onRanks(2, (group) => train(kind, steps, from, group))).map(resultOf)

test.each(['sharded', 'pipelined'] as const)(
  'averages of a %s model are those of the whole, on every rank',
  async (kind) => {
    const whole = await train('whole', 3)
    expect(Object.keys(whole.average)).toHaveLength(6)
    expect(Object.keys(whole.buffers!)).toHaveLength(2)
    for (const state of await onTwo(kind, 3)) expect(state).toEqual(whole)
  },
)

test.each(['sharded', 'pipelined'] as const)(
  'averages of a whole model continue in a %s one, and are saved whole again before a step',
  async (kind) => {
    const saved = await train('whole', 3)
    for (const state of await onTwo(kind, 0, saved)) expect(state).toEqual(saved)
    const continued = await train('whole', 2, saved)
    for (const state of await onTwo(kind, 2, saved)) expect(state).toEqual(continued)
  },
)
