import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { expect, test } from 'vitest'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { cellOf, checkElastic } from '../../support/simulation/elastic/check-elastic.ts'
import { simulateElastic } from '../../support/simulation/elastic/elastic.ts'
import { ElasticWorld } from '../../support/simulation/elastic/elastic-world.ts'
import { liars } from '../../support/simulation/elastic/liar.ts'
import { cells, drawElastic, type ElasticScenario } from '../../support/simulation/elastic/plan.ts'
import { violationOf, weakRules } from '../../support/simulation/elastic/weak-rules.ts'
import { Trace } from '../../support/simulation/trace.ts'

// A share of the simulated elastic runs; tests/all/unit/peer/elastic-simulation.spec.ts runs thousands. See src/peer/protocol.md.

setFlagsFromString('--expose-gc')
const collectGarbage: () => void = runInNewContext('gc')

test('elastic runs of 12 seeds never have two groups and end with the state of an undisturbed one', async () => {
  const total = { injected: 0, rosters: 0, echoes: 0, done: 0, compared: 0 }
  for (let seed = 1; seed <= 12; seed++) {
    const { injected, rosters, echoes, done, hash } = await checkElastic(seed)
    total.injected += injected.length
    total.rosters += rosters
    total.echoes += echoes
    total.done += done
    if (hash !== undefined) total.compared++
  }
  expect(total.injected).toBeGreaterThan(9)
  expect(total.rosters).toBeGreaterThan(60)
  expect(total.echoes, 'old messages that arrived once more').toBeGreaterThan(300)
  expect(total.done).toBeGreaterThan(20)
  expect(total.compared, 'runs with one kind of device').toBeGreaterThan(2)
}, 60_000)

test.each(liars)(
  'a %s that sends any message with any fields: 4 seeds, and no honest member splits, fails or waits for a person',
  async (liar) => {
    for (let seed = 1; seed <= 4; seed++) await checkElastic(seed, { liar })
  },
  60_000,
)

test('every sixteenth cell of faults, moments and roles: 1 seed', async () => {
  for (const cell of cells.filter((_, at) => at % 16 === 0)) await checkElastic(1, { cell })
}, 60_000)

test('a simulation repeats message by message when its seed is the same', async () => {
  for (const seed of [7, 8]) {
    const traces = [new Trace(), new Trace()]
    for (const trace of traces) await simulateElastic(drawElastic(seed), trace)
    expect(traces[0]!.lines.length).toBeGreaterThan(20)
    expect(traces[0]!.lines).toEqual(traces[1]!.lines)
  }
})

test('a message fault happens to a message that its member sends at the planned moment', async () => {
  const found: (string | undefined)[][] = []
  for (const moment of ['updating', 'after the update', 'saving'] as const)
    for (let seed = 1; seed <= 8; seed++) {
      const cell = { kind: 'drop', role: 'ordinary', moment } as const
      const { faults, ...scenario } = drawElastic(seed, { cell })
      const world = new ElasticWorld({ ...scenario, faults: faults.slice(0, 1) })
      const newest = new Map<string, string>()
      const { moment: reached } = world
      world.moment = (life, name) => {
        newest.set(life.id, name)
        reached.call(world, life, name)
      }
      world.note = (text) => {
        const [, id] = /^!! drop strikes (\S+):/.exec(text) ?? []
        if (id) found.push([moment, newest.get(id)])
      }
      while (world.injected.size === 0 && world.env.now() < 4000 && (await world.env.step()));
      world.end()
    }
  expect(found.length).toBeGreaterThan(3)
  expect(found.filter(([planned, actual]) => planned !== actual)).toEqual([])
}, 60_000)

// What the simulation found. What a seed means may change: the text says what happened.
test.each([
  [
    5316,
    'a rank that lost its device, and the state with it, was the only one that kept its place',
  ],
  [204214, 'a founder that came into its first group late began, where the others met first'],
  [13885, 'a member that had promised another leader was waited for until its links were closed'],
])('%i: %s', async (seed) => {
  await checkElastic(seed)
})

test('the next life of a leader proves that it has gone when it said bye, won the half and was left out', async () => {
  await checkElastic(1_002_271, { liar: 'member' })
})

test('a member whose leader dies with its decision enters the next roster before the links of the first', async () => {
  const cell = cellOf('close, decision, donor')
  await checkElastic(36, { cell })
})

test('a member of a ring whose neighbour cannot be linked keeps its link to the other one', async () => {
  const world = { ...drawElastic(152, { liar: 'member', members: [17, 20] }), steps: 2 }
  expect((await simulateElastic(world)).violations).toEqual([])
})

test('a decision proves nothing until all members have it when its leader dies in a ring', async () => {
  const world = { ...drawElastic(274, { liar: 'member', members: [17, 20] }), steps: 2 }
  expect((await simulateElastic(world)).violations).toEqual([])
})

test('a person decides when all that hold the state are lost while a newcomer receives it', async () => {
  const member = (machine: number) => ({ device: 0, machine })
  const loss = { kind: 'close', moment: 'state transfer', role: 'donor', ms: 0 } as const
  const { violations } = await simulateElastic({
    seed: 1,
    founders: [member(0), member(1)],
    joiners: [2, 3].map((machine) => ({ atMs: 300, ...member(machine) })),
    steps: 40,
    virtualWorkers: 4,
    stepMs: 40,
    delayMs: 5,
    faults: [
      { ...loss, nth: 1 },
      { ...loss, nth: 2 },
    ],
  })
  expect(violations).toEqual([])
})

test('a member keeps no group of members that joined and left', async () => {
  const count = 12
  const world = new ElasticWorld({
    seed: 1,
    founders: [
      { device: 0, machine: 0 },
      { device: 0, machine: 1 },
    ],
    joiners: Array.from({ length: count }, (_, at) => ({
      atMs: 1000 * at + 300,
      device: 0,
      machine: 2,
    })),
    steps: 10_000,
    virtualWorkers: 4,
    stepMs: 20,
    delayMs: 1,
    faults: Array.from({ length: count }, (_, at) => ({
      kind: 'close',
      moment: 'catching up',
      role: 'joiner',
      nth: at + 1,
      ms: 0,
    })),
  })
  const [first] = world.lives
  const groups = new Map<number, WeakRef<ProcessGroup>>()
  while (world.env.now() < 1000 * (count + 2)) {
    await world.env.step()
    const { group } = first!
    if (group) groups.set(group.epoch, new WeakRef(group))
  }
  expect(world.injected.size).toBe(count)
  expect(groups.size).toBeGreaterThan(2 * count)
  // Weak references hold until the end of the task that made them.
  for (let at = 0; at < 3; at++) {
    await new Promise((resolve) => setImmediate(resolve))
    collectGarbage()
  }
  expect([...groups.values()].filter((one) => one.deref()).length).toBeLessThan(4)
  world.end()
  expect(world.violations).toEqual([])
}, 60_000)

const drawn = (first: number, options?: Parameters<typeof drawElastic>[1]) =>
  Array.from({ length: 60 }, (_, at) => drawElastic(first + at, options))

/** One member has the run from a server that is another process when the connection to the other one is back. */
const newServers = Array.from(
  { length: 12 },
  (_, seed): ElasticScenario => ({
    seed,
    founders: [0, 1].map((machine) => ({ device: 0, machine })),
    joiners: [],
    steps: 250,
    virtualWorkers: 4,
    stepMs: 200,
    delayMs: 0.5,
    faults: [
      { kind: 'partition', moment: 'computing', role: 'ordinary', nth: 2, ms: 25_000 },
      { kind: 'server lost', moment: 'computing', role: 'senior', nth: 10, ms: 25_000 },
    ],
  }),
)
const split = { kind: 'partition', moment: 'computing', role: 'senior' } as const

// A check that cannot fail proves nothing.
test.each([
  ['a minority', weakRules.minority, drawn(15)],
  ['any half', weakRules.half, drawn(30, { cell: split, members: [2, 2] })],
  ['the first half that asks a new server', weakRules['new server'], newServers],
] as const)(
  'where %s may continue, two groups train',
  async (_, weakness, worlds) => {
    expect(await violationOf(weakness, worlds)).toMatch(/built step|steps up to/)
  },
  60_000,
)

test('the simulator finds a broken run when a newcomer may send any message', async () => {
  expect(await violationOf(weakRules['no rights'], drawn(13, { liar: 'newcomer' }))).not.toBe('')
}, 60_000)

test('the simulator finds ended honest links when members of a ring may change passed messages', async () => {
  const world = { ...drawElastic(5, { liar: 'member', members: [17, 20] }), steps: 10 }
  expect(await violationOf(weakRules['no signatures'], [world])).toMatch(
    /which no fault had struck/,
  )
}, 60_000)

test('no two groups train when a half asks a new server', async () => {
  for (const world of newServers) expect((await simulateElastic(world)).violations).toEqual([])
})
