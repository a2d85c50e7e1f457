import { expect, test } from 'vitest'
import { mustFit } from '../../../src/ddp/exact/must-fit.ts'
import type { Parameter } from '../../../src/graph/trace/parameter.ts'
import { BatchNorm1d } from '../../../src/nn/batch-norm.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { Sequential } from '../../../src/nn/module.ts'
import { SyncBatchNorm } from '../../../src/nn/sync-batch-norm.ts'

test('exact refuses a SyncBatchNorm by its path', () => {
  const model = new Sequential(new Linear(3, 4), new BatchNorm1d(4))
  mustFit(model)
  const converted = SyncBatchNorm.convert(model)
  expect(() => mustFit(converted)).toThrow(/^exact: "1" is a SyncBatchNorm, .* Use BatchNorm, /)
})

test('exact refuses a model of more than 50 million parameters and says what memory it would take', () => {
  const model = new Linear(1, 1)
  model.parameters = () => [{ count: 60e6 } as Parameter]
  expect(() => mustFit(model)).toThrow(
    'exact: expected at most 50 million parameters, got 60 million, which take 4.1 GB of host memory on each rank. Use a smaller model, or train without exact.',
  )
})
