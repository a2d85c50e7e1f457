import { describe, expect, test } from 'vitest'
import { task as digits } from '../../../demos/digits/demo.ts'
import { task as text } from '../../../demos/text/demo.ts'
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
