import { expect, test } from 'vitest'
import { meta } from '../../demos/playground/meta.ts'
import { crossEntropy, sampleCount } from '../../src/graph/functions/linear.ts'
import { Tanh } from '../../src/nn/activations.ts'
import { Linear } from '../../src/nn/layers.ts'
import { Sequential } from '../../src/nn/module.ts'
import type { Task } from '../../src/trainer/settings/task.ts'
import { tensorType } from '../../src/util/shape.ts'
import golden from '../golden/changed-rate.json'
import { formulaUniform } from '../support/formula-data.ts'
import { testRuntime } from '../support/run-op.ts'
import { lossesOf, resultsOf, trainRanks } from '../support/train-ranks.ts'

const { steps, samples, seeds, shapes, bound, changes, losses } = golden
const points = formulaUniform(seeds.x, 2 * samples, 1)
const keys = ['0.weight', '0.bias', '2.weight', '2.bias']

/** The classifier of the golden file. */
const task = {
  meta,
  load: async () => ({ train: { count: samples }, test: { count: samples } }),
  model: () => {
    const model = new Sequential(new Linear(2, 8), new Tanh(), new Linear(8, 2))
    const weights = keys.map((key, i) => {
      const shape = shapes[i]
      const count = shape.reduce((product, size) => product * size, 1)
      return [key, { shape, data: formulaUniform(seeds.weights[i], count, bound) }]
    })
    model.loadStateDict(Object.fromEntries(weights))
    return model
  },
  types: (_config, _data, rows) => ({ x: tensorType([rows, 2]), y: tensorType([rows], 'i32') }),
  fill: (_data, _split, indices, { x, y }) => {
    indices.forEach((index, row) => {
      const at = points.subarray(2 * index, 2 * index + 2)
      x.set(at, 2 * row)
      y[row] = Number(at[0] * at[1] > 0)
    })
  },
  forward: (model, { x }) => model.forward(x),
  loss: (logits, { y }) => crossEntropy(logits, y, { count: sampleCount() }),
  queries: {},
} satisfies Task

test.each([
  [1, 'adamw', {}],
  [2, 'sgd', {}],
  [2, 'adamw', { exact: true, virtualWorkers: 4 }],
] as const)(
  '%i ranks with %s, %o: Trainer has the losses of PyTorch when the learning rate changes',
  async (size, optimizer, more) => {
    const runtime = await testRuntime()
    const [{ from: lr }] = changes
    const input = { demo: 'playground', optimizer, steps, batchSize: samples, lr, ...more } as const
    const ends = await trainRanks(
      size,
      { ...input, changes: JSON.stringify(changes) },
      () => runtime,
      undefined,
      task as Task,
    )
    resultsOf(ends)
    for (const end of ends) {
      const own = lossesOf(end)
      expect(own).toHaveLength(steps)
      for (const [i, loss] of own.entries()) expect(loss).toBeCloseTo(losses[optimizer][i], 4)
    }
  },
)
