import { expect, test } from 'vitest'
import { parseTrainConfig } from '../../../demos/experiments.ts'
import { startWorker } from '../../../demos/start-worker.ts'
import { startCompute } from '../../../src/worker/page/client.ts'

const membership = { epoch: 1, rank: 0, worldSize: 1 }

test('a loss that is no number names the step, the op and its shapes', async () => {
  const client = startCompute(startWorker)
  const config = parseTrainConfig({ optimizer: 'sgd', lr: 1e18, steps: 80, batchSize: 16 })
  await expect(
    client.api.train(membership, config, location.href, () => undefined),
  ).rejects.toMatchObject({
    code: 'train.nan',
    message: expect.stringMatching(
      /^step \d+: \w+\((f32|i32)\[[\d, ]+\].*(the result is not finite|expected finite arguments)/,
    ),
  })
  client.terminate()
})

test('the whole experiment runs on the CPU when asked, to the loss of the GPU', async () => {
  const client = startCompute(startWorker)
  const config = parseTrainConfig({ steps: 2, batchSize: 4 })
  const losses: number[] = []
  for (const [epoch, device] of (['webgpu', 'cpu'] as const).entries()) {
    const facts = await client.api.open(device)
    expect(facts.architecture === 'wasm').toBe(device === 'cpu')
    const result = await client.api.train(
      { ...membership, epoch },
      config,
      location.href,
      () => undefined,
    )
    await client.api.leave()
    losses.push(result.loss)
  }
  expect(Math.abs(losses[1] - losses[0])).toBeLessThan(1e-5)
  client.terminate()
})
