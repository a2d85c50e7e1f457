import { describe, expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { crossEntropy } from '../../../src/graph/functions/linear.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { BatchNorm1d } from '../../../src/nn/batch-norm.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { Module } from '../../../src/nn/module.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { pipeline } from '../../../src/parallel/pipeline/pipe.ts'
import { Schedule1F1B, ScheduleGPipe } from '../../../src/parallel/pipeline/schedule.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { onRanks, resultOf } from '../../support/ranks-of-one.ts'

// Micro-batches change running statistics one after another. Reads see what they would on one device.

const types = { x: tensorType([8, 3]), y: tensorType([8], 'i32') }
const inputs = {
  x: Float32Array.from({ length: 24 }, (_, i) => Math.sin(i)),
  y: Int32Array.from({ length: 8 }, (_, i) => i % 2),
}

/** What a stage makes of its output and the running mean of the first stage. */
type Use = (output: Tensor, mean: Tensor) => Tensor

class Model extends Module {
  readonly one = new Linear(3, 2)
  readonly bn = new BatchNorm1d(2)
  readonly two = new Linear(2, 2)

  constructor(
    readonly first: Use,
    readonly second: Use,
  ) {
    super()
  }

  forward(x: Tensor): Tensor {
    const mean = this.bn.runningMean!
    const h = this.first(this.bn.forward(this.one.forward(x)), mean)
    return this.second(this.two.forward(h), mean.to(this.two.weight.device!))
  }
}

interface Uses {
  readonly first?: Use
  readonly second?: Use
}

type Outputs = Record<string, number[]>

/** What three steps return, on one device or on one of two ranks. */
async function train(
  Kind: typeof ScheduleGPipe | typeof Schedule1F1B,
  { first = (h) => h, second = (y) => y }: Uses,
  group?: ProcessGroup,
): Promise<Outputs[]> {
  manualSeed(3)
  const model = new Model(first, second)
  const pipe = await pipeline(
    model,
    group
      ? { splitSpec: ['two'], devices: ['rank:0/reference', 'rank:1/reference'] }
      : { stages: 1, devices: ['reference'] },
  )
  const schedule = new Kind(pipe, { microBatches: 4, lossFn: crossEntropy })
  const optimizer = new SGD(model.parameters(), { lr: 0.1 })
  const mean = model.bn.runningMean!
  const step = await compile(
    ({ x, y }) => {
      optimizer.zeroGrad()
      const before = mean.add(0)
      const { loss } = schedule.step(x, y)
      const after = mean.add(0)
      optimizer.step()
      return { loss, before, after }
    },
    types,
    { device: 'reference', ...(group && { group }) },
  )
  const steps: Outputs[] = []
  for (let i = 0; i < 3; i++) {
    const outputs = Object.entries(await step.run(inputs))
    steps.push(Object.fromEntries(outputs.map(([name, data]) => [name, [...data]])))
  }
  step.destroy()
  return steps
}

const scaled: Use = (h, mean) => h.mul(mean.sum().add(1))
const ways: Record<string, Uses> = {
  'the step reads them before and after': {},
  'the next stage reads them': { second: scaled },
  'their own stage reads a copy': { first: (h, mean) => scaled(h, mean.add(0)) },
}

describe.each([ScheduleGPipe, Schedule1F1B])('running statistics in %o', (Kind) => {
  test.each(Object.keys(ways))('are those of one device when %s', async (name) => {
    const alone = await train(Kind, ways[name])
    const [first, second] = (await onRanks(2, (group) => train(Kind, ways[name], group))).map(
      resultOf,
    )
    expect(alone[0].before).toEqual([0, 0])
    for (const [i, { loss, before, after }] of alone.entries()) {
      expect(before).not.toEqual(after)
      const split = { ...first[i], ...second[i] }
      expect(split.loss[0]).toBeCloseTo(loss[0], 6)
      for (const at of before.keys()) {
        expect(split.before[at]).toBeCloseTo(before[at], 6)
        expect(split.after[at]).toBeCloseTo(after[at], 6)
      }
    }
  })

  test('are refused by name when backward reads what later micro-batches change', async () => {
    const first: Use = (h, mean) => h.mul(mean)
    const ended = await onRanks(2, (group) => train(Kind, { first }, group))
    const text =
      /changes buffer "bn\.running_mean".*: mul.*\(backward of micro-batch 0.* must come before batchNorm.*\(forward of micro-batch 1/
    for (const one of ended) expect(() => resultOf(one)).toThrow(text)
  })
})
