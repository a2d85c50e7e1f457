import { afterEach, expect, test } from 'vitest'
import { metaOf, parseTrainConfig } from '../../../demos/experiments.ts'
import { metas } from '../../../demos/metas.ts'
import type { DemoMeta } from '../../../src/trainer/settings/demo-meta.ts'
import { judge } from '../../../src/ui/demo/expected.tsx'
import { assigned, play } from '../../support/page-states.ts'
import { testRuntime } from '../../support/run-op.ts'
import { startTask } from '../../support/task-ranks.ts'

afterEach(async () => (await testRuntime()).gpu.check())

const stated = Object.entries<DemoMeta>(metas).flatMap(([demo, { expected }]) =>
  expected.map((expectation) => ({ demo, ...expectation })),
)

test('every demo states a result', () => {
  expect(new Set(stated.map(({ demo }) => demo)).size).toBe(Object.keys(metas).length)
})

test.each(stated)(
  '$demo reaches its stated result',
  async ({ demo, ...expectation }) => {
    const { config, atLeast, atMost, withinSteps } = expectation
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

    // A page with this run's events ticks it off, and not before its tests came.
    const { events } = ranks[0]
    const untested = events.filter(({ event }) => event !== 'evaluation')
    const verdicts = [events, untested].map((received) => {
      const begun = play(assigned(1), {
        type: 'config',
        config: parseTrainConfig({ demo, ...config, steps: withinSteps }),
      })
      const { run } = play(
        begun,
        ...received.map((event, atMs) => ({ type: 'event', event, atMs }) as const),
      )
      return judge(expectation, demo, metaOf(demo), run).is
    })
    expect(verdicts).toEqual(['reached', 'open'])
  },
  120_000,
)
