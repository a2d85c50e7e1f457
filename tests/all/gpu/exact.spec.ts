import { describe, expect, test } from 'vitest'
import { task as digits } from '../../../demos/digits/demo.ts'
import { task as text } from '../../../demos/text/demo.ts'
import { BatchNorm2d } from '../../../src/nn/batch-norm.ts'
import { Conv2d } from '../../../src/nn/convolution.ts'
import { Flatten, Linear, ReLU } from '../../../src/nn/layers.ts'
import { Sequential } from '../../../src/nn/module.ts'
import type { TrainConfigInput } from '../../../src/trainer/settings/config.ts'
import type { Task } from '../../../src/trainer/settings/task.ts'
import { testRuntime } from '../../support/run-op.ts'
import { lossesOf, resultsOf, trainRanks } from '../../support/train-ranks.ts'

// tests/gpu/exact.spec.ts has the smallest of these.

const runs: readonly (readonly [name: string, task: unknown, input: TrainConfigInput])[] = [
  ['the MLP', digits, { demo: 'digits', data: 'digits', model: 'mlp', batchSize: 64, steps: 40 }],
  ['the CNN', digits, { demo: 'digits', data: 'digits', model: 'cnn', batchSize: 32, steps: 20 }],
  ['the GPT', text, { demo: 'text', data: 'story', batchSize: 8, steps: 12 }],
]

describe.each(runs)('%s', (_, task, input) => {
  const train = async (size: number, more: TrainConfigInput = {}) => {
    const runtime = await testRuntime()
    return trainRanks(size, { ...input, ...more }, () => runtime, undefined, task as Task)
  }

  test('ends with the same bits on 1, 2 and 3 ranks', { timeout: 240_000 }, async () => {
    const [{ paramHash }] = resultsOf(await train(1, { exact: true }))
    for (const size of [2, 3])
      for (const result of resultsOf(await train(size, { exact: true })))
        expect(result.paramHash).toBe(paramHash)
  })

  test.each([0, 1, 2])(
    'follows the losses of a plain run with seed %i',
    { timeout: 240_000 },
    async (seed) => {
      const [plain] = await train(1, { seed })
      const [own] = await train(1, { seed, exact: true })
      const expected = lossesOf(plain)
      for (const [i, loss] of lossesOf(own).entries())
        expect(Math.abs(loss / expected[i] - 1), `step ${i + 1}`).toBeLessThan(2e-3)
    },
  )
})

test('a CNN with batch normalization, by SGD, has the same state after each step on 1, 2 and 3 ranks', {
  timeout: 240_000,
}, async () => {
  const runtime = await testRuntime()
  const task = {
    ...digits,
    model: () =>
      new Sequential(
        new Conv2d(1, 4, 3, { stride: 2 }),
        new BatchNorm2d(4),
        new ReLU(),
        new Flatten(),
        new Linear(4 * 13 * 13, 10),
      ),
  } as unknown as Task
  const input: TrainConfigInput = {
    demo: 'digits',
    data: 'digits',
    model: 'cnn',
    optimizer: 'sgd',
    exact: true,
    virtualWorkers: 4,
    batchSize: 32,
    steps: 20,
    seed: 3,
  }
  const seen: unknown[] = []
  for (const size of [1, 2, 3]) {
    const ends = await trainRanks(size, input, () => runtime, undefined, task)
    for (const [rank, { paramHash }] of resultsOf(ends).entries()) {
      const hashes = ends[rank].events.flatMap((event) =>
        event.event === 'step' ? [event.stateHash] : [],
      )
      expect(new Set(hashes).size).toBe(input.steps)
      seen.push({ paramHash, hashes })
    }
  }
  expect(seen).toHaveLength(6)
  for (const one of seen) expect(one).toEqual(seen[0])
})
