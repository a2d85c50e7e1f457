import { expect, test } from 'vitest'
import { task } from '../../demos/playground/demo.ts'
import type { Task } from '../../src/trainer/settings/task.ts'
import { testRuntime } from '../support/run-op.ts'
import { lossesOf, resultsOf, trainRanks } from '../support/train-ranks.ts'

test('an exact run ends with the same bits on 1, 2 and 3 ranks', async () => {
  const runtime = await testRuntime()
  const runs = []
  for (const size of [1, 2, 3]) {
    const settings = { demo: 'playground', model: 'tanh-8-8', data: 'xor', steps: 12 } as const
    const input = { ...settings, batchSize: 22, exact: true, virtualWorkers: 4 }
    runs.push(await trainRanks(size, input, () => runtime, undefined, task as Task))
  }
  const [{ paramHash }] = resultsOf(runs[0])
  for (const ranks of runs) {
    for (const result of resultsOf(ranks)) expect(result.paramHash).toBe(paramHash)
    for (const rank of ranks) expect(lossesOf(rank)).toEqual(lossesOf(runs[0][0]))
  }
})
