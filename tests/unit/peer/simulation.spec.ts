import { describe, expect, test } from 'vitest'
import { checkWorld } from '../../support/simulation/check-world.ts'
import { simulateRejoining } from '../../support/simulation/rejoining.ts'
import { checkSeed, isReplay, seedsFrom } from '../../support/simulation/replay.ts'
import {
  drawScenario,
  largeWorlds,
  middleWorlds,
  pipelineWorlds,
  smallWorlds,
} from '../../support/simulation/scenario.ts'
import { simulate } from '../../support/simulation/simulate.ts'
import { Trace } from '../../support/simulation/trace.ts'

// A share of the simulated worlds; tests/all/unit/peer/simulation.spec.ts runs thousands. See docs/how-it-works/collectives.md.

const spec = 'tests/unit/peer/simulation.spec.ts'

test.each([
  ['1 to 6 ranks', 1, 100, smallWorlds],
  ['7 to 16 ranks', 1_000_001, 15, middleWorlds],
  ['17 to 64 ranks', 2_000_001, 2, largeWorlds],
  ['pipelines of 2 to 6 ranks', 4_000_001, 20, pipelineWorlds],
] as const)('%s: seeds from %i on, %i of them', async (_, first, count, bounds) => {
  for (const seed of seedsFrom(first, count)) await checkWorld(seed, bounds, spec)
})

test('groups that follow one another: 20 seeds', async () => {
  for (const seed of seedsFrom(3_000_001, 20)) await checkSeed(seed, spec, simulateRejoining)
})

test.skipIf(isReplay)(
  'a seed decides everything: twice the same frames at the same moments',
  async () => {
    for (const [seed, bounds] of [
      [7, smallWorlds],
      [8, smallWorlds],
      [1_000_003, middleWorlds],
    ] as const) {
      const traces = [new Trace(), new Trace()]
      for (const trace of traces) await simulate(drawScenario(seed, bounds), trace)
      expect(traces[0]!.lines.length).toBeGreaterThan(20)
      expect(traces[0]!.lines).toEqual(traces[1]!.lines)
    }
  },
)

// What the simulation found when it was made. What a seed means may change: faults.spec.ts and others have the same by hand.
describe.skipIf(isReplay)('seeds that once failed', () => {
  test.each([
    [1795, 'a rank that left over a frozen link told that it had lost the other'],
    [5066, 'ready() waited for HELLO long after the epoch was over'],
    [15_603, 'the same behind a link that was cut one way'],
    [367, 'ready() ended well after the epoch was over'],
    [2215, 'a rank that was suspended says so itself, where the others told of a deadline'],
    [2, 'allGatherBytes told twice that all had begun'],
  ])('%i: %s', async (seed) => {
    await checkWorld(seed, smallWorlds, spec)
  })
})
