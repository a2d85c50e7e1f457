import { test } from 'vitest'
import { checkSeed, seedsFrom } from '../../support/simulation/replay.ts'
import { roomTimes, runRooms } from '../../support/simulation/rooms.ts'

// A share of the simulated rooms; tests/all/unit/signal/rooms-simulation.spec.ts runs hundreds. See docs/how-it-works/collectives.md.

test('6 seeds of 3 rooms and 36 members', async () => {
  const run = runRooms({ members: 36, rooms: 3, ...roomTimes, oddOneIn: 6 })
  for (const seed of seedsFrom(1, 6))
    await checkSeed(seed, 'tests/unit/signal/rooms-simulation.spec.ts', run)
})
