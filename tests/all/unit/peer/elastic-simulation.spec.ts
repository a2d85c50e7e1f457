import { afterAll, describe, expect, test } from 'vitest'
import { checkElastic, injectCell } from '../../../support/simulation/elastic/check-elastic.ts'
import type { ElasticOutcome } from '../../../support/simulation/elastic/elastic.ts'
import { liars } from '../../../support/simulation/elastic/liar.ts'
import { cells, drawElastic, faults } from '../../../support/simulation/elastic/plan.ts'
import { violationOf, weakRules } from '../../../support/simulation/elastic/weak-rules.ts'

// Whole elastic runs that one number decides: members, links, joiners, faults. See src/peer/protocol.md.

/** Number of seeds in which the fault of a cell is injected. */
const injections = 20

const total = { seeds: 0, injected: 0, rosters: 0, echoes: 0, done: 0, compared: 0 }

function add({ injected, rosters, echoes, done, hash }: ElasticOutcome): void {
  total.seeds++
  total.injected += injected.length
  total.rosters += rosters
  total.echoes += echoes
  total.done += done
  if (hash !== undefined) total.compared++
}

describe.each(faults)('%s, injected for each role at each possible moment', (kind) => {
  test(`in ${injections} seeds each`, async () => {
    for (const cell of cells.filter((one) => one.kind === kind))
      await injectCell(cell, injections, 1, add)
  }, 600_000)
})

test.each([0, 1, 2, 3, 4, 5])(
  'seeds of 2 to 6 members that begin: 500 from %i * 500 on',
  async (part) => {
    for (let seed = 1; seed <= 500; seed++) add(await checkElastic(500 * part + seed))
  },
  600_000,
)

/** In which a lying member has made two groups, or had somebody wait for ever. */
const onceFailed = [
  3040, 5480, 5519, 6818, 7437, 7885, 8262, 10_762, 11_580, 20_718, 30_392, 40_107, 810_448,
]

test.each(liars)(
  'a %s that lies: 500 seeds, and those in which a member has done harm',
  async (liar) => {
    for (let seed = 1; seed <= 500; seed++) await checkElastic(seed, { liar })
    if (liar === 'member') for (const seed of onceFailed) await checkElastic(seed, { liar })
  },
  600_000,
)

test.each([0, 1, 2])(
  'seeds of up to 64 members: 10 from 10 * %i on',
  async (part) => {
    for (let seed = 1; seed <= 10; seed++)
      add(await checkElastic(10 * part + seed, { members: [2, 64] }))
  },
  600_000,
)

test('half a class that was cut off comes in again before the run is over', async () => {
  await checkElastic(750, { members: [17, 64] })
}, 120_000)

test('newcomers that die as they are let in do not hold up a ring', async () => {
  await checkElastic(1418, { members: [17, 32] })
}, 120_000)

test('a ring is proved when all are in it, not those beside a rank alone', async () => {
  await checkElastic(1037, { members: [17, 64] })
}, 300_000)

test('where the newest roster counts without those before it, two groups train', async () => {
  const cell = { kind: 'one-way', moment: 'decision', role: 'senior' } as const
  const worlds = Array.from({ length: 300 }, (_, at) => drawElastic(1 + at, { cell }))
  expect(await violationOf(weakRules.chain, worlds)).toMatch(/built step|steps up to/)
}, 300_000)

afterAll(() => {
  if (process.env.TABRING_COUNTS) console.log(total)
})

test('over all seeds faults were injected, old messages arrived again, runs ended', () => {
  expect(total.seeds).toBeGreaterThan(3000 + cells.length * injections)
  expect(total.injected).toBeGreaterThan(8000)
  expect(total.rosters).toBeGreaterThan(50_000)
  expect(total.echoes).toBeGreaterThan(300_000)
  expect(total.done).toBeGreaterThan(20_000)
  expect(total.compared, 'runs with one kind of device').toBeGreaterThan(3000)
})
