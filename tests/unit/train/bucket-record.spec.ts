import { afterEach, expect, test, vi } from 'vitest'
import { task } from '../../../demos/digits/demo.ts'
import { parseTrainConfig } from '../../../demos/experiments.ts'
import { bucketCapMbFor } from '../../../src/ddp/data-parallel/bucket-size.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { Trainer } from '../../../src/trainer/loop/trainer.ts'
import type { TrainConfigInput } from '../../../src/trainer/settings/config.ts'
import { ringOf } from '../../support/process-ring.ts'
import { serveDigits } from '../../support/served-digits.ts'

afterEach(() => vi.restoreAllMocks())

/** Each rank's record of two steps. */
async function records(config: TrainConfigInput) {
  serveDigits(8, () => 100)
  const groups = await ringOf(2)
  return Promise.all(
    groups.map(async (group) => {
      const trainer = new Trainer({
        task,
        runtime: new ReferenceRuntime(),
        group,
        config: parseTrainConfig({ data: 'images', steps: 2, batchSize: 4, ...config }),
        baseUrl: 'https://data.example/',
        onEvent: () => undefined,
      })
      const { record } = await trainer.run()
      trainer.destroy()
      group.destroy()
      return record
    }),
  )
}

test('a run keeps the size of buckets that it was given or has measured, the same on all ranks', async () => {
  const [given, others] = await records({ bucketCapMb: 0.1 })
  expect([given.bucketCapMb, others.bucketCapMb]).toEqual([0.1, 0.1])
  expect(given.buckets.length).toBeGreaterThan(1)
  const [measured, other] = await records({})
  expect(measured.config.bucketCapMb).toBeUndefined()
  expect(measured.links.bytesPerMs).toBeGreaterThan(0)
  expect(measured.bucketCapMb).toBe(bucketCapMbFor(measured.links))
  expect(other).toMatchObject({ links: measured.links, bucketCapMb: measured.bucketCapMb })
})
