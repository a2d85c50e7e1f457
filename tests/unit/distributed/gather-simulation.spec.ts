import { test } from 'vitest'
import { checkGathering } from '../../support/simulation/gathering.ts'
import { seedsFrom } from '../../support/simulation/replay.ts'

// A share of the simulated gatherings; tests/all/unit/distributed/gather-simulation.spec.ts runs hundreds.

test('20 seeds of 1 to 64 ranks', async () => {
  for (const seed of seedsFrom(5_000_001, 20))
    await checkGathering(seed, 'tests/unit/distributed/gather-simulation.spec.ts')
})
