import { afterEach, expect, test } from 'vitest'
import { metas } from '../../demos/metas.ts'
import type { DemoMeta } from '../../src/train/demo-meta.ts'
import { testRuntime } from '../support/run-op.ts'
import { startTask } from '../support/task-ranks.ts'

afterEach(async () => (await testRuntime()).gpu.check())

const stated = Object.entries<DemoMeta>(metas).flatMap(([demo, { expected }]) =>
  expected.map((expectation) => ({ demo, ...expectation })),
)

test('every demo states a result', () => {
  expect(new Set(stated.map(({ demo }) => demo)).size).toBe(Object.keys(metas).length)
})

test.each(stated)(
  '$demo reaches its stated result',
  async ({ demo, config, atLeast, atMost, withinSteps }) => {
    const { ranks, close } = await startTask(
      1,
      { demo, ...config, steps: withinSteps, bucketCapMb: 1 },
      testRuntime,
    )
    const { best, steps } = await ranks[0].end
    close()
    expect(steps).toBe(withinSteps)
    if (atLeast !== undefined) expect(best).toBeGreaterThanOrEqual(atLeast)
    if (atMost !== undefined) expect(best).toBeLessThanOrEqual(atMost)
    expect(atLeast ?? atMost).toBeDefined()
  },
  120_000,
)
