import { expect, test } from 'vitest'
import { task as digits } from '../../../demos/digits/demo.ts'
import { parseTrainConfig } from '../../../demos/experiments.ts'
import type { Parameter } from '../../../src/graph/trace/parameter.ts'
import { BatchNorm1d } from '../../../src/nn/batch-norm.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { type Module, Sequential } from '../../../src/nn/module.ts'
import { SyncBatchNorm } from '../../../src/nn/sync-batch-norm.ts'
import { exactRun } from '../../../src/trainer/exact/exact-run.ts'
import type { Task } from '../../../src/trainer/settings/task.ts'
import { ringOf } from '../../support/process-ring.ts'

async function runOf(model: Module) {
  const [group] = await ringOf(1)
  const config = parseTrainConfig({ data: 'images', exact: true })
  try {
    return exactRun(digits as unknown as Task, model, config, 36, group)
  } finally {
    group.destroy()
  }
}

test('exact refuses a SyncBatchNorm by its path', async () => {
  const model = new Sequential(new Linear(3, 4), new BatchNorm1d(4))
  await runOf(model)
  await expect(runOf(SyncBatchNorm.convert(model))).rejects.toMatchObject({
    code: 'config.invalid',
    message: expect.stringMatching(/^exact: "1" is a SyncBatchNorm, .* Use BatchNorm, /),
  })
})

test('exact refuses a model of more than 50 million parameters and says what memory it would take', async () => {
  const model = new Linear(1, 1)
  model.parameters = () => [{ count: 60e6 } as Parameter]
  await expect(runOf(model)).rejects.toMatchObject({
    code: 'config.invalid',
    message:
      'exact: expected at most 50 million parameters, got 60 million, which take 2.6 GB of host memory on each rank. Use a smaller model, or train without exact.',
  })
})
