import { afterEach, expect, test } from 'vitest'
import { ElasticMember } from '../../../src/peer/elastic/elastic-member.ts'
import type { StepPace } from '../../../src/peer/elastic/link-test.ts'
import { maxSlow } from '../../../src/peer/elastic/newcomers.ts'
import { elasticTimes } from '../../../src/peer/elastic/options.ts'
import {
  type MemoryLink,
  type MemoryLinkOptions,
  memoryPair,
} from '../../../src/peer/link/memory-link.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { cheapSigner } from '../../support/cheap-signer.ts'

// A run whose steps take 0.3 s and exchange 1 MB, on a virtual clock: which newcomers it lets in.

interface Member {
  readonly id: string
  readonly elastic: ElasticMember
  /** Events to its owner: 'stop', 'wish', 'out', and the members that it waits for, with the reason. */
  readonly received: string[]
  readonly links: MemoryLink[]
}

let world = new VirtualEnv(1)
let members: Member[] = []
let pace: StepPace

const fast = () => ({ delayMs: () => 1, bytesPerMs: 10_000 })
const slow = () => ({ delayMs: () => 1, bytesPerMs: 100 })

afterEach(() => {
  for (const { elastic } of members) elastic.resign('the test is over')
})

function member(id: string, founders: string | null): Member {
  const received: string[] = []
  const roster = founders === null ? null : { ballot: 1, members: founders.split('') }
  const elastic = new ElasticMember(
    { env: world, self: id, signer: cheapSigner(id, world), roster, max: 64, pace: () => pace },
    {
      stop: () => received.push('stop'),
      request: () => received.push('wish'),
      out: () => received.push('out'),
      undecided: () => undefined,
      waits: (who, why) => received.push(`${who}: ${why}`),
    },
  )
  const made = { id, elastic, received, links: [] }
  members.push(made)
  return made
}

function link(a: Member, b: Member, options: MemoryLinkOptions): void {
  const [there, back] = memoryPair(world, options)
  a.links.push(there)
  b.links.push(back)
  a.elastic.links.add(there, b.id)
  b.elastic.links.add(back, b.elastic.roster ? a.id : null)
}

/** Two that train. */
function train(): [Member, Member] {
  world = new VirtualEnv(1)
  members = []
  pace = {
    ...{ bytes: 1e6, stepMs: 300, newestStepMs: 300, restMs: 200, heldBy: null, isPaused: false },
    limitMs: (stepMs) => Math.max(1000, 2 * stepMs),
  }
  const a = member('a', 'ab')
  const b = member('b', 'ab')
  link(a, b, fast())
  return [a, b]
}

function join(id: string, to: readonly Member[], options: MemoryLinkOptions): Member {
  const newcomer = member(id, null)
  for (const one of to) link(one, newcomer, options)
  newcomer.elastic.next().catch(() => undefined)
  return newcomer
}

const nextOf = async (some: readonly Member[], isPlanned = true) => {
  const all = await Promise.all(some.map(({ elastic }) => world.until(elastic.next(isPlanned))))
  return all.map((roster) => roster.members.join(''))
}

const why =
  "its connection carries a step's gradients in 10 s, and a step of the run takes 0.3 s. Training does not wait for it: the connection is measured again in 10 s."

test('a newcomer over a fast link is let in at once', async () => {
  const [a, b] = train()
  join('x', [a, b], fast())
  await world.advance(200)
  expect([a.received, b.received]).toEqual([['wish'], []])
  expect(await nextOf([a, b])).toEqual(['abx', 'abx'])
})

test('a newcomer over a fast link is let in though a member that does not lead says that it is slow', async () => {
  const [a, b] = train()
  join('x', [a, b], fast())
  await world.advance(200)
  const lie = { type: 'wait', id: 'x', why: 'a lie', isSlow: true, members: ['a', 'b'] } as const
  b.elastic.links.send(['a'], lie)
  await world.advance(10)
  expect(a.received).toEqual(['wish'])
  expect(await nextOf([a, b])).toEqual(['abx', 'abx'])
})

test('a newcomer over a slow link waits, and all hear why', async () => {
  const [a, b] = train()
  const x = join('x', [a, b], slow())
  await world.advance(10_000)
  expect([a.received, b.received, x.received]).toEqual([
    [`x: ${why}`],
    [`x: ${why}`],
    [`x: ${why}`],
  ])
})

test('a slow newcomer neither comes in nor holds the others up when another is let in', async () => {
  const [a, b] = train()
  const x = join('x', [a, b], slow())
  await world.advance(10_000)
  // Its answer takes 40 s.
  x.links[0].send(new Uint8Array(64 * 1024))
  for (let i = 0; i < 60; i++) x.links[0].send(new Uint8Array(64 * 1024))
  const y = join('y', [a, b], fast())
  link(x, y, fast())
  await world.advance(200)
  expect(a.received.at(-1)).toBe('wish')
  const beganMs = world.now()
  expect(await nextOf([a, b])).toEqual(['aby', 'aby'])
  expect(world.now() - beganMs).toBeLessThan(100)
  await world.advance(100)
  // Its links stay.
  for (const one of x.links) expect(one.room()).toBeGreaterThan(0)
  expect(x.received.includes('out')).toBe(false)
})

test('a slow newcomer does not come in even when it answers in time', async () => {
  const [a, b] = train()
  const x = join('x', [a, b], slow())
  await world.advance(10_000)
  const y = join('y', [a, b], fast())
  link(x, y, fast())
  await world.advance(200)
  const first = a.elastic.next(true)
  // The call waits for the step to end here.
  await world.advance(1000)
  expect(await nextOf([b])).toEqual(['aby'])
  expect((await first).members.join('')).toBe('aby')
})

test('a slow newcomer is not let in after a loss either, and the next senior member measures it', async () => {
  const [a, b] = train()
  const c = member('c', null)
  for (const one of [a, b]) link(one, c, fast())
  c.elastic.next().catch(() => undefined)
  await world.advance(200)
  expect(await nextOf([a, b])).toEqual(['abc', 'abc'])
  for (const { elastic } of [a, b, c]) elastic.proved()
  const x = join('x', [a, b, c], slow())
  await world.advance(10_000)
  expect(x.received.length).toBe(1)
  for (const one of a.links) one.close('the process has ended')
  expect(await nextOf([b], false)).toEqual(['bc'])
  await world.advance(8000)
  expect(b.received.at(-1)).toBe(`x: ${why}`)
  await world.advance(60_000)
  expect(x.received.includes('out')).toBe(false)
})

test('a slow newcomer waits for minutes, and comes in once its link is faster', async () => {
  const [a, b] = train()
  const rate = slow()
  const x = join('x', [a, b], rate)
  await world.advance(3 * elasticTimes.joinMs)
  expect(a.received.includes('wish')).toBe(false)
  expect(x.received.includes('out')).toBe(false)
  rate.bytesPerMs = 10_000
  while (!a.received.includes('wish')) await world.advance(1000)
  expect(await nextOf([a, b])).toEqual(['abx', 'abx'])
})

test('a link that was slow is measured again after 10 s, then less often, down to once a minute', async () => {
  const [a, b] = train()
  join('x', [a, b], slow())
  await world.advance(250_000)
  const waits = a.received.map((text) => /in (\d+) s\.$/.exec(text)?.[1])
  expect(waits).toEqual(['10', '20', '40', '60', '60', '60'])
})

test('a link that recovers just after it was measured lets its newcomer in within 20 s', async () => {
  const [a, b] = train()
  const rate = slow()
  join('x', [a, b], rate)
  await world.advance(5000)
  expect(a.received).toEqual([`x: ${why}`])
  rate.bytesPerMs = 10_000
  await world.advance(15_000)
  expect(a.received.at(-1)).toBe('wish')
})

test(`one that was slow comes in over a link that is twice as fast, until ${maxSlow} others were slow`, async () => {
  const [a, b] = train()
  a.elastic.newcomers.wereSlow(['x'])
  const x = join('x', [a, b], { delayMs: () => 1, bytesPerMs: 1500 })
  await world.advance(5000)
  expect(x.received).toEqual([expect.stringMatching(/^x: its connection carries/)])
  a.elastic.newcomers.wereSlow(Array.from({ length: maxSlow }, (_, at) => `y${at}`))
  await world.advance(15_000)
  expect(a.received.at(-1)).toBe('wish')
})

test('a newcomer whose link carries nothing waits', async () => {
  const [a, b] = train()
  const x = join('x', [a, b], { delayMs: () => 1, bytesPerMs: 1 })
  await world.advance(10_000)
  expect(a.received).toEqual([expect.stringContaining('its connection carried nothing for 5.0 s.')])
  expect(x.received).toEqual([])
})

test('the rate of a link does not depend on its round trip', async () => {
  const [a, b] = train()
  join('x', [a, b], { delayMs: () => 400, bytesPerMs: 2000 })
  await world.advance(5000)
  expect(a.received).toEqual(['wish'])
})

test('a slow newcomer is let in when steps are long, and not when they are short', async () => {
  const [a, b] = train()
  pace = { ...pace, stepMs: 6000 }
  join('x', [a, b], slow())
  await world.advance(10_000)
  expect(a.received).toEqual(['wish'])
})

test('a newcomer is measured once a step has ended', async () => {
  const [a, b] = train()
  const known = pace
  pace = undefined as unknown as StepPace
  join('x', [a, b], fast())
  await world.advance(10_000)
  expect(a.received).toEqual([])
  pace = known
  await world.advance(1200)
  expect(a.received).toEqual(['wish'])
})

test('a newcomer to a paused run waits as long as the pause lasts', async () => {
  const [a, b] = train()
  pace = { ...pace, isPaused: true }
  const x = join('x', [a, b], fast())
  await world.advance(3 * elasticTimes.joinMs)
  expect(new Set(x.received)).toEqual(new Set(['x: the run is paused.']))
  expect([a.received, b.received]).toEqual([['wish'], []])
  pace = { ...pace, isPaused: false }
  expect(await nextOf([a, b])).toEqual(['abx', 'abx'])
})
