import { expect, test } from 'vitest'
import {
  type ElasticFault,
  elasticFaults,
  runElasticRooms,
} from '../../support/simulation/elastic-rooms.ts'
import { checkSeed, isReplay, seedsFrom } from '../../support/simulation/replay.ts'

// A room with an elastic run in worlds that one number decides: who comes, goes, comes back, says what. See rooms-simulation.spec.ts.

test('100 seeds of a room with an elastic run', async () => {
  const fired = Object.fromEntries(elasticFaults.map((name) => [name, 0])) as Record<
    ElasticFault,
    number
  >
  let linkings = 0
  let joined = 0
  let strangers = 0
  for (const seed of seedsFrom(1, 100)) {
    const outcome = await checkSeed(
      seed,
      'tests/unit/signal/elastic-simulation.spec.ts',
      runElasticRooms,
    )
    for (const name of elasticFaults) fired[name] += outcome.fired[name]
    linkings += outcome.linkings
    joined += outcome.joined
    strangers += outcome.strangers
  }
  if (isReplay) return
  for (const name of elasticFaults) expect(fired[name], name).toBeGreaterThanOrEqual(20)
  expect(linkings).toBeGreaterThan(500)
  expect(joined).toBeGreaterThan(1000)
  expect(strangers).toBeGreaterThan(20)
}, 60_000)
