import { afterEach, expect, test } from 'vitest'
import { ElasticMember } from '../../../src/peer/elastic/elastic-member.ts'
import { ProcessGroup } from '../../../src/peer/group/group.ts'
import { type MemoryLinkOptions, memoryPair } from '../../../src/peer/link/memory-link.ts'
import { exchangeLimitMs, PhaseTimeouts } from '../../../src/trainer/loop/phase-timeouts.ts'
import { PeerError } from '../../../src/util/errors.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { cheapSigner } from '../../support/cheap-signer.ts'

// Ranks that train over memory links on a virtual clock, of which some turn slow: whom they name, and whom they leave out.

const elements = 125_000
const computeMs = 200
const fast = 10_000
/** A step's gradients take 20 s. units: bytes/ms. */
const slow = 50

interface Rank {
  readonly id: string
  readonly elastic: ElasticMember
  /** Its events to its owner, with their times. */
  readonly received: { atMs: number; text: string }[]
  group: ProcessGroup
  patience: PhaseTimeouts
  steps: number
  stepBeganMs: number
  lastStepMs: number
  isOut: boolean
}

let world = new VirtualEnv(1)
let ranks: Rank[] = []
/** The rank that waits for nobody's bytes, as one whose own do not get away. */
let sender = ''
/** By the two ids. */
const rates = new Map<string, { delayMs(): number; bytesPerMs: number }>()

afterEach(() => {
  for (const { elastic, group } of ranks) {
    elastic.resign('the test is over')
    group.destroy()
  }
  rates.clear()
  sender = ''
})

const sleep = (ms: number) => new Promise<void>((resolve) => world.after(ms, resolve))

function rankOf(id: string, ids: readonly string[], computesMs: number): Rank {
  const received: Rank['received'] = []
  const tell = (text: string) => received.push({ atMs: world.now(), text })
  const pace = () => {
    const { patience, lastStepMs, stepBeganMs, group } = made
    if (lastStepMs === 0) return undefined
    const newestStepMs = Math.max(lastStepMs, world.now() - stepBeganMs)
    const heldBy = id === sender ? null : group.heldBy
    const now = { bytes: 8 * elements, stepMs: lastStepMs, newestStepMs, heldBy, isPaused: false }
    return { ...now, restMs: patience.restMs, limitMs: exchangeLimitMs }
  }
  const elastic = new ElasticMember(
    {
      ...{ env: world, self: id, roster: { ballot: 1, members: ids }, max: 64, pace },
      signer: cheapSigner(id, world),
      // Those with a capital letter share one.
      machineOf: (one) => (one < 'a' ? 'M' : one),
    },
    {
      stop: () => made.group.abort(new PeerError('peer.lost', 'the members decide')),
      request: () => tell('wish'),
      out: () => tell('out'),
      undecided: (about) => tell(about ? 'undecided' : 'decided'),
      holdsUp: (who, why) => tell(`${who}: ${why}`),
      waits: (who, why) => tell(`${who} waits: ${why}`),
    },
  )
  const made = {
    id,
    elastic,
    received,
    steps: 0,
    stepBeganMs: 0,
    lastStepMs: 0,
    isOut: false,
  } as Rank
  void train(made, computesMs)
  return made
}

async function train(rank: Rank, computesMs: number): Promise<void> {
  await sleep(0)
  for (;;) {
    const { ballot, members } = rank.elastic.roster!
    const at = members.indexOf(rank.id)
    const links = rank.elastic.links.open(ballot, members)
    const before = { group: rank.group, restMs: rank.patience?.restMs }
    rank.group = new ProcessGroup({
      rank: at,
      size: members.length,
      epoch: ballot,
      links,
      env: world,
    })
    rank.patience = new PhaseTimeouts(rank.group, rank.patience && before)
    rank.lastStepMs = 0
    try {
      await rank.group.ready()
      rank.elastic.proved()
      for (;;) await step(rank, computesMs)
    } catch {
      rank.isOut = await rank.elastic.next().then(
        () => false,
        () => true,
      )
      if (rank.isOut) return
    }
  }
}

async function step(rank: Rank, computesMs: number): Promise<void> {
  const beganMs = world.now()
  rank.stepBeganMs = beganMs
  await sleep(computesMs)
  const launchedMs = world.now()
  let startedMs = launchedMs
  const onstarted = () => {
    startedMs = world.now()
  }
  await rank.group.allReduce(new Float32Array(elements), { onstarted })
  const endedMs = world.now()
  const times = {
    total: endedMs - beganMs,
    wait: startedMs - launchedMs,
    wire: endedMs - startedMs,
  }
  rank.patience.stepped(times)
  rank.lastStepMs = times.total
  rank.stepBeganMs = endedMs
  rank.steps++
}

const pairOf = (a: string, b: string) => [a, b].sort().join('')

/** `ids`: a letter each. `computes`: how long it computes in a step, by id; default `computeMs`. */
function begin(
  ids: string,
  computes: Readonly<Record<string, number>> = {},
  isRing = false,
): Rank[] {
  world = new VirtualEnv(1)
  const all = ids.split('')
  ranks = all.map((id) => rankOf(id, all, computes[id] ?? computeMs))
  for (const [at, a] of ranks.entries())
    for (const b of ranks.slice(at + 1)) {
      const apart = ranks.indexOf(b) - at
      if (isRing && apart > 1 && apart < ranks.length - 1) continue
      const rate = { delayMs: () => 1, bytesPerMs: fast, highWaterBytes: 2 ** 18 }
      rates.set(pairOf(a.id, b.id), rate)
      const [there, back] = memoryPair(world, rate as MemoryLinkOptions)
      a.elastic.links.add(there, b.id)
      b.elastic.links.add(back, a.id)
    }
  return ranks
}

function turn(which: (pair: string) => boolean, bytesPerMs: number): void {
  for (const [pair, rate] of rates) if (which(pair)) rate.bytesPerMs = bytesPerMs
}

const why = (id: string) =>
  new RegExp(
    `^${id}: it carries a step's gradients in 2\\d s, and without that a step takes 0.[23] s\\.$`,
  )

const membersOf = (of: readonly Rank[]) => of.map(({ elastic }) => elastic.roster!.members.join(''))

test.each(['a', 'b', 'c'])(
  'three ranks, of which %s turns slow: the others name it within 10 s, and continue without it at their pace',
  async (id) => {
    const all = begin('abc')
    const others = all.filter((one) => one.id !== id)
    await world.advance(5000)
    turn((pair) => pair.includes(id), slow)
    const [beganMs, stepsBefore] = [world.now(), others[0]!.steps]
    await world.advance(15_000)
    for (const { received } of others) {
      expect(received[0]!.text).toMatch(why(id))
      expect(received[0]!.atMs - beganMs).toBeLessThan(10_000)
    }
    expect(membersOf(others)).toEqual(Array(2).fill('abc'.replace(id, '')))
    expect(others[0]!.steps - stepsBefore).toBeGreaterThan(15)
    // Over its links it may hear nothing: it says itself why it waits.
    const [slowOne] = all.filter((one) => one.id === id)
    expect(slowOne!.received.map(({ text }) => text).slice(-2)).toEqual([
      expect.stringMatching(
        new RegExp(
          `^${id} waits: its connection carries a step's gradients in \\d+ s, and without that a step takes 0.[23] s\\.$`,
        ),
      ),
      'out',
    ])
    // Nothing holds them up any more.
    expect(others.map(({ received }) => received.at(-1)!.text)).toEqual([
      'null: null',
      'null: null',
    ])
  },
)

test('three ranks, of which one cannot send and waits for nobody: it shows why it is left out, as the others report', async () => {
  sender = 'c'
  const [, , c] = begin('abc')
  await world.advance(5000)
  turn((pair) => pair.includes('c'), slow)
  await world.advance(15_000)
  expect(c!.received.map(({ text }) => text)).toContainEqual(
    expect.stringMatching(/^c waits: its connection carries a step's gradients in \d+ s, and/),
  )
})

test('five ranks, and one link between two that turns slow: one of the two is left out', async () => {
  const all = begin('abcde')
  await world.advance(5000)
  turn((pair) => pair === 'bc', slow)
  await world.advance(20_000)
  const [first] = membersOf(all.filter(({ id }) => id === 'a'))
  expect(['acde', 'abde']).toContain(first)
  const stepsBefore = all[0]!.steps
  await world.advance(5000)
  expect(all[0]!.steps - stepsBefore).toBeGreaterThan(15)
})

test('a ring of six, of which one turns slow: only this one is named, by the rank behind it', async () => {
  const all = begin('abcdef', {}, true)
  await world.advance(5000)
  turn((pair) => pair.includes('d'), slow)
  await world.advance(10_000)
  const texts = all
    .filter(({ id }) => id !== 'd')
    .flatMap(({ received }) => received.map(({ text }) => text))
  expect(new Set(texts.map((text) => text[0]))).toEqual(new Set(['d']))
})

test('one that was left out comes in again once a step takes half of what others may take', async () => {
  const all = begin('abc')
  await world.advance(5000)
  turn((pair) => pair.includes('c'), slow)
  await world.advance(15_000)
  const others = all.slice(0, 2)
  expect(membersOf(others)).toEqual(['ab', 'ab'])
  const requests = () =>
    others.flatMap(({ received }) => received.filter(({ text }) => text === 'wish'))
  // A step's gradients take 0.8 s, then 0.4 s.
  const rate = { delayMs: () => 1, bytesPerMs: 1250 }
  const elastic = new ElasticMember(
    { env: world, self: 'c.2', signer: cheapSigner('c.2', world), roster: null, max: 64 },
    {
      stop: () => undefined,
      request: () => undefined,
      out: () => undefined,
      undecided: () => undefined,
    },
  )
  for (const one of others) {
    const [there, back] = memoryPair(world, rate)
    one.elastic.links.add(there, 'c.2')
    elastic.links.add(back, null)
  }
  await world.advance(20_000)
  expect(requests()).toEqual([])
  rate.bytesPerMs = 2500
  await world.advance(60_000)
  expect(requests()).toHaveLength(1)
  elastic.resign('the test is over')
})

test('seven ranks, of which three share a machine that turns slow: the others continue without these', async () => {
  const all = begin('AbcBdeC')
  await world.advance(5000)
  // Ports between its tabs stay fast.
  turn((pair) => /[ABC][a-z]/.test(pair), slow)
  await world.advance(30_000)
  const others = all.filter(({ id }) => id >= 'a')
  expect(membersOf(others)).toEqual(Array(4).fill('bcde'))
  expect(others[0]!.received.at(-1)!.text).toBe('null: null')
})

test('two ranks whose link turns slow: both report it until it is fast again, and stay together', async () => {
  const [a, b] = begin('ab') as [Rank, Rank]
  await world.advance(5000)
  turn(() => true, slow)
  await world.advance(10_000)
  for (const { id, received } of [a, b]) expect(received[0]!.text).toMatch(why(id))
  expect(membersOf([a, b])).toEqual(['ab', 'ab'])
  turn(() => true, fast)
  await world.advance(40_000)
  expect([a, b].map(({ received }) => received.at(-1)!.text)).toEqual(['null: null', 'null: null'])
})

test('three ranks, all of whose links turn slow: nobody is left out', async () => {
  const all = begin('abc')
  await world.advance(5000)
  turn(() => true, slow)
  await world.advance(60_000)
  expect(membersOf(all)).toEqual(['abc', 'abc', 'abc'])
  // Each names its own links.
  for (const { id, received } of all) expect(received[0]!.text).toMatch(why(id))
})

test('a rank that computes slowly is not taken for one with a slow link', async () => {
  const all = begin('abc', { c: 4000 })
  await world.advance(60_000)
  turn(() => true, 2000)
  await world.advance(60_000)
  expect(all.flatMap(({ received }) => received)).toEqual([])
})
