import { expect, test } from 'vitest'
import { task as playground } from '../../demos/playground/demo.ts'
import { DistributedDataParallel } from '../../src/ddp/data-parallel/data-parallel.ts'
import type { ExactOptions } from '../../src/ddp/data-parallel/exact-training.ts'
import { compile } from '../../src/graph/compile/compile.ts'
import { crossEntropy, sampleCount } from '../../src/graph/functions/linear.ts'
import type { AnyRuntime } from '../../src/graph/memory/runtime.ts'
import { BatchNorm1d } from '../../src/nn/batch-norm.ts'
import { Dropout } from '../../src/nn/dropout.ts'
import { manualSeed } from '../../src/nn/init.ts'
import { Linear, ReLU } from '../../src/nn/layers.ts'
import { type Module, Sequential } from '../../src/nn/module.ts'
import { AdamW } from '../../src/optim/adam.ts'
import { StepLR } from '../../src/optim/lr-scheduler/decays.ts'
import { SGD } from '../../src/optim/sgd.ts'
import type { OptimizerStateDict } from '../../src/optim/state-dict.ts'
import type { CollectiveGroup } from '../../src/peer/group/collective-group.ts'
import type { Task } from '../../src/trainer/settings/task.ts'
import { uniform } from '../../src/util/random.ts'
import { tensorType } from '../../src/util/shape.ts'
import { trainByOwnProgram } from '../support/own-program.ts'
import { onRanks, resultOf } from '../support/ranks-of-one.ts'
import { testRuntime } from '../support/run-op.ts'
import { lossesOf, resultsOf, trainRanks } from '../support/train-ranks.ts'

const batchSize = 22
const features = 6
/** In epochs of two batches, of which the second one is short. */
const samples = 33
const x = uniform(7, 1, samples * features)
const y = Int32Array.from({ length: samples }, (_, i) => (i * 7919) % 3)

type Optimizer = AdamW | SGD

interface Program {
  readonly exact?: boolean | ExactOptions
  readonly optimizerOf?: (model: Module) => Optimizer
  readonly layers?: () => Module[]
}

/** A program as a person writes it: one rank of it. */
async function ownProgram(
  group: CollectiveGroup,
  runtime: AnyRuntime,
  {
    exact = { virtualWorkers: 4 },
    optimizerOf = (model) => new AdamW(model.parameters(), { lr: 0.02 }),
    layers = () => [new Linear(features, 8), new ReLU(), new Linear(8, 3)],
  }: Program,
) {
  manualSeed(5)
  const model = new DistributedDataParallel(new Sequential(...layers()), {
    processGroup: group,
    exact,
  })
  const optimizer = optimizerOf(model)
  const { rows } = model.exactShare(batchSize)
  const step = await compile(
    ({ x, y }) => {
      const loss = crossEntropy(model.forward(x), y, { count: sampleCount() })
      optimizer.zeroGrad()
      loss.backward()
      optimizer.step()
      return { loss, twice: loss.mul(2) }
    },
    { x: tensorType([rows, features]), y: tensorType([rows], 'i32') },
    { runtime },
  )
  const train = async (from: number, to: number, each: () => void = () => undefined) => {
    const losses: number[] = []
    for (let i = from; i < to; i++) {
      const begin = (i % 2) * batchSize
      const count = Math.min(batchSize, samples - begin)
      const { start, end } = model.exactShare(batchSize, count)
      const own = [begin + start, begin + end] as const
      const { loss, twice } = await step.run(
        {
          x: x.subarray(own[0] * features, own[1] * features),
          y: y.subarray(own[0], own[1]),
        },
        // Ranks of one process would each take the next number.
        step.prepared.trace.scalars.has('randomStep') ? { randomStep: i } : {},
      )
      expect(twice[0]).toBeCloseTo(2 * loss[0], 5)
      losses.push(loss[0])
      each()
    }
    return losses
  }
  const contents = async () => (await model.module.stateDict()) as unknown
  return { model, optimizer, step, train, contents }
}

test.each<[string, Program]>([
  ['AdamW', {}],
  ['SGD', { optimizerOf: (model) => new SGD(model.parameters(), { lr: 0.1, momentum: 0.9 }) }],
  [
    'batch normalization, dropout and clipping',
    {
      exact: { virtualWorkers: 4, clipNorm: 0.5 },
      layers: () => [
        new Linear(features, 8),
        new BatchNorm1d(8),
        new ReLU(),
        new Dropout(0.3),
        new Linear(8, 3),
      ],
    },
  ],
])(
  'an own program with %s and exact ends with the same bits on 1, 2 and 3 ranks',
  async (_, own) => {
    const runtime = await testRuntime()
    const runs = []
    for (const size of [1, 2, 3]) {
      const ends = await onRanks(size, async (group) => {
        const { model, optimizer, train, contents } = await ownProgram(group, runtime, own)
        const scheduler = new StepLR(optimizer, 3, { gamma: 0.5 })
        const inSync = await model.verifySync({ everySteps: 2 })
        const losses = await train(0, 8, () => scheduler.step())
        for (let i = 0; i < 2; i++) await inSync()
        return { losses, contents: await contents(), lr: optimizer.paramGroups[0].lr }
      })
      runs.push(...ends.map(resultOf))
    }
    for (const run of runs) expect(run).toEqual(runs[0])
    const { losses, lr } = runs[0]
    expect(losses[6]).toBeLessThan(losses[0])
    expect(lr).toBeLessThan(0.1)
  },
)

test('an own program with exact ends with the bits of the built-in training when both are the same run', async () => {
  const runtime = await testRuntime()
  const settings = { demo: 'playground', model: 'tanh-8-8', data: 'xor', steps: 12 } as const
  const input = { ...settings, batchSize, exact: true, virtualWorkers: 4 }
  const [trained] = await trainRanks(1, input, () => runtime, undefined, playground as Task)
  const ends = await onRanks(2, (group) =>
    trainByOwnProgram(playground as Task, input, { processGroup: group, runtime }),
  )
  for (const end of ends.map(resultOf))
    expect(end).toEqual({
      losses: lossesOf(trained),
      paramHash: resultsOf([trained])[0].paramHash,
    })
})

test('a run with exact continues from its state on another number of ranks with the bits of one that was never stopped', async () => {
  const runtime = await testRuntime()
  let kept: { model: unknown; optimizer: OptimizerStateDict } | undefined
  const part = async (size: number, from: number, to: number) => {
    const ends = await onRanks(size, async (group) => {
      const { model, optimizer, step, train } = await ownProgram(group, runtime, {})
      if (kept) {
        // Once before the first step and once behind it, which must not stay.
        for (const steps of [1, 0]) {
          model.module.loadStateDict(kept.model as never)
          optimizer.loadStateDict(kept.optimizer)
          await train(0, steps)
        }
      }
      await train(from, to)
      const state = {
        model: await model.module.stateDict(),
        optimizer: await optimizer.stateDict(),
      }
      step.destroy()
      return state
    })
    return ends.map(resultOf)[0]
  }
  const whole = await part(1, 0, 6)
  kept = await part(2, 0, 3)
  expect(await part(3, 3, 6)).toEqual(whole)
})

test('contents that a program assigns between two steps are what the next step begins with', async () => {
  const runtime = await testRuntime()
  const ends = await onRanks(2, async (group) => {
    const own = await ownProgram(group, runtime, {
      optimizerOf: (model) => new SGD(model.parameters(), { lr: 0 }),
    })
    const before = await own.train(0, 1)
    await own.train(1, 2)
    for (const parameter of own.model.parameters())
      parameter.assign(new Float32Array(parameter.count))
    return { before, after: await own.train(0, 1) }
  })
  for (const { before, after } of ends.map(resultOf)) {
    expect(after[0]).toBeCloseTo(Math.log(3), 5)
    expect(before[0]).not.toBe(after[0])
  }
})
