import { afterAll, describe, expect, test } from 'vitest'
import { checkWorld } from '../../../support/simulation/check-world.ts'
import { type FaultKindName, faultKinds } from '../../../support/simulation/fault-plan.ts'
import { simulateRejoining } from '../../../support/simulation/rejoining.ts'
import { checkSeed, isReplay, seedsFrom } from '../../../support/simulation/replay.ts'
import {
  largeWorlds,
  middleWorlds,
  pipelineWorlds,
  smallWorlds,
  type WorldBounds,
} from '../../../support/simulation/scenario.ts'
import type { Outcome } from '../../../support/simulation/simulate.ts'

// The protocol's own code in worlds that one number decides: ranks, links, calls, faults. See docs/how-it-works/collectives.md.

const spec = 'tests/all/unit/peer/simulation.spec.ts'

interface Range {
  name: string
  first: number
  count: number
  bounds: WorldBounds
}

const ranges: Range[] = [
  { name: '1 to 6 ranks', first: 1, count: 2500, bounds: smallWorlds },
  { name: '7 to 16 ranks', first: 1_000_001, count: 200, bounds: middleWorlds },
  { name: '17 to 64 ranks', first: 2_000_001, count: 50, bounds: largeWorlds },
  { name: 'pipelines of 2 to 6 ranks', first: 4_000_001, count: 500, bounds: pipelineWorlds },
]
const rejoining = { first: 3_000_001, count: 500 }

const fired = new Map<FaultKindName, number>()
const phases = new Map<string, number>()
const total = { resolved: 0, rejected: 0, spoilt: 0 }
const add = <K>(counts: Map<K, number>, key: K) => counts.set(key, (counts.get(key) ?? 0) + 1)

function tally(outcome: Outcome): void {
  for (const { kind, phase } of outcome.fired) {
    add(fired, kind)
    add(phases, phase)
  }
  total.resolved += outcome.resolved
  total.rejected += outcome.rejected
  total.spoilt += outcome.spoilt
}

describe.each(ranges)('$name', ({ first, count, bounds }) => {
  test(`${count} seeds`, async () => {
    for (const seed of seedsFrom(first, count)) tally(await checkWorld(seed, bounds, spec))
  }, 120_000)
})

test(`groups that follow one another: ${rejoining.count} seeds`, async () => {
  const counts = { lost: 0, lostWhileJoining: 0, stale: 0, dropped: 0 }
  for (const seed of seedsFrom(rejoining.first, rejoining.count)) {
    const outcome = await checkSeed(seed, spec, simulateRejoining)
    for (const name of Object.keys(counts) as (keyof typeof counts)[]) counts[name] += outcome[name]
  }
  if (isReplay) return
  expect(counts.lost).toBeGreaterThan(500)
  expect(counts.lostWhileJoining).toBeGreaterThan(100)
  expect(counts.stale, 'frames of an epoch that was over, sent again').toBeGreaterThan(2000)
  expect(counts.dropped, 'and more that were on their way').toBeGreaterThan(counts.stale)
}, 120_000)

describe.skipIf(isReplay)('over all seeds', () => {
  test.each(faultKinds)('%s was injected', (kind) => {
    expect(fired.get(kind) ?? 0).toBeGreaterThanOrEqual(25)
  })

  test.each(['joining', 'start', 'data', 'credit', 'ping', 'aborting', 'leaving', 'barrier'])(
    'faults were injected in the phase %s',
    (phase) => {
      expect(phases.get(phase) ?? 0).toBeGreaterThanOrEqual(15)
    },
  )

  test('calls resolved and rejected', () => {
    expect(total.resolved).toBeGreaterThan(80_000)
    expect(total.rejected).toBeGreaterThan(20_000)
  })

  test('a flipped bit in data is not detected by frames: DTLS and SCTP detect it', () => {
    expect(total.spoilt).toBeGreaterThan(0)
  })
})

/** Prints how often each fault was injected, by kind and by phase. */
afterAll(() => {
  if (process.env.TABRING_COUNTS)
    console.log(Object.fromEntries(fired), Object.fromEntries(phases), total)
})
