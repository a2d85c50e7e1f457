import { expect, test } from 'vitest'
import { compile } from '../../../../src/graph/compile/compile.ts'
import golden from '../../../golden/conv-layers.json'
import {
  convModel,
  convOptimizer,
  convRecipes,
  convStep,
  convTypes,
} from '../../../support/conv-models.ts'

test("the plain references follow PyTorch's float64 through a CNN with batch norm, running statistics included", async () => {
  const [run] = golden.trajectories
  const model = await convModel(run)
  const step = convStep(model, convOptimizer(run, model))
  const program = await compile(step, convTypes(run), { device: 'reference' })
  for (let index = 0; index < 2; index++) {
    const { loss } = await program.run(convRecipes[run.name].batch(index, run.batchSize))
    expect(Math.abs(loss[0] - run.losses[index])).toBeLessThan(1e-6)
  }
  const state = await model.stateDict()
  expect([...state['1.num_batches_tracked'].data]).toEqual([2])
})
