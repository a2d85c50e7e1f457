import { describe, expect, it } from 'vitest'
import { limits, type Measured } from '../../../src/peer/room/messages.ts'
import { type LobbyTab, LobbyTabs } from '../../support/lobby-tabs.ts'
import { infoOf } from '../../support/member-info.ts'
import { RendezvousWorld } from '../../support/rendezvous-world.ts'

/** How far neighbours are from each other before a run: the real server and links, on a virtual clock. */

/** Each member's word on the one behind it, by name. */
const wordsOf = (tab: LobbyTab): Record<string, [to: string, ms: number | null] | null> => {
  const { members } = tab.lobby!
  const nameOf = (id: string) => members.find((one) => one.id === id)?.name ?? 'who has left'
  const words = ({ toNext }: Measured = {}): [string, number | null] | null =>
    toNext ? [nameOf(toNext.id), toNext.us === null ? null : toNext.us / 1000] : null
  return Object.fromEntries(members.map(({ name, measured }) => [name, words(measured)]))
}

/** As it should be, of `names` in the order of their ranks. */
const ringOf = (world: LobbyTabs, names: string[]) =>
  Object.fromEntries(
    names.map((name, rank) => {
      const next = names[(rank + 1) % names.length]
      return [name, [next, 2 * world.latencyMs(name, next)]]
    }),
  )
const namesOf = (count: number) => Array.from({ length: count }, (_, index) => `t${index}`)

describe('neighbours in a room that waits', () => {
  it('30 that join one after the other soon know their round trips, over one link for each edge of the ring', async () => {
    const world = new LobbyTabs()
    const tabs = await world.fill(30)
    expect(
      world.calls,
      'while others come nobody calls but who has a settled neighbour',
    ).toBeLessThan(30)
    await world.env.advance(8_000)
    for (const tab of [tabs[0], tabs[17]]) expect(wordsOf(tab)).toEqual(ringOf(world, namesOf(30)))
    expect(world.calls).toBe(30)
    expect(world.open.size).toBe(60)
    expect(Math.max(...tabs.map(({ boxes }) => boxes))).toBe(1)
    expect(Math.max(...tabs.map(({ largestBytes }) => largestBytes))).toBeLessThan(
      limits.messageBytes / 3,
    )
    // An hour later the same links, and no news.
    const received = tabs[5].lobby
    await world.env.advance(3_600_000)
    expect(world.calls).toBe(30)
    expect(tabs[5].lobby).toBe(received)
    expect(tabs.flatMap(({ errors }) => errors)).toEqual([])
  })

  it('links end when a run begins, and are made again after it', async () => {
    const world = new LobbyTabs()
    const tabs = await world.fill(5)
    await world.env.advance(8_000)
    tabs[0].say({ type: 'start', settings: null })
    await world.env.advance(100)
    expect(world.open.size).toBe(0)
    await world.env.advance(5_000)
    expect(tabs[3].lobby!.state).toBe('running')
    // Nor does anyone call who waits for the next run.
    world.come('late')
    await world.env.advance(5_000)
    expect(world.calls).toBe(5)
    world.leave('late')
    for (const { measured } of tabs) {
      expect(measured!.linkUs).toEqual([1500, 1500])
      expect(measured).not.toHaveProperty('toNext')
    }
    for (const tab of tabs) tab.say({ type: 'done', epoch: 1 })
    await world.env.advance(8_000)
    expect(wordsOf(tabs[2])).toEqual(ringOf(world, namesOf(5)))
    for (const { measured } of tabs) expect(measured).not.toHaveProperty('linkUs')
    expect(world.open.size).toBe(10)
  })

  it('links follow members that leave, reload, or get another rank', async () => {
    const world = new LobbyTabs()
    const tabs = await world.fill(5)
    await world.env.advance(8_000)
    expect(world.calls).toBe(5)

    world.leave('t2')
    await world.env.advance(5_000)
    expect(wordsOf(tabs[4])).toEqual(ringOf(world, ['t0', 't1', 't3', 't4']))
    expect(world.calls, 'one edge is new').toBe(6)

    world.leave('t1')
    world.come('t1')
    await world.env.advance(8_000)
    expect(wordsOf(tabs[4])).toEqual(ringOf(world, ['t0', 't3', 't4', 't1']))

    tabs[0].say({ type: 'handOver', id: tabs[4].id })
    await world.env.advance(8_000)
    expect(wordsOf(tabs[4])).toEqual(ringOf(world, ['t4', 't0', 't3', 't1']))
    expect(world.open.size).toBe(8)

    for (const name of ['t0', 't3', 't1']) world.leave(name)
    await world.env.advance(5_000)
    expect(wordsOf(tabs[4])).toEqual({ t4: null })
    expect(world.open.size).toBe(0)
    world.leave('t4')
    await world.env.advance(20_000)
    expect(world.env.timers).toBe(0)
  })

  it('two have one link between them', async () => {
    const world = new LobbyTabs()
    const [first] = await world.fill(2)
    await world.env.advance(5_000)
    expect(wordsOf(first)).toEqual({ t0: ['t1', 2.5], t1: null })
    expect(world.open.size).toBe(2)
  })

  it('a member out of reach is reported at once, called again at growing intervals, and measured once it is reachable', async () => {
    const world = new LobbyTabs()
    world.apart.add('t1 t2')
    const tabs = await world.fill(4)
    await world.env.advance(4_000)
    const expected = ringOf(world, namesOf(4))
    expect(wordsOf(tabs[3])).toEqual({ ...expected, t1: ['t2', null] })
    await world.env.advance(3_600_000)
    const again = world.calls - 4
    expect(again).toBeGreaterThan(20)
    expect(again).toBeLessThan(40)
    world.apart.clear()
    await world.env.advance(130_000)
    expect(wordsOf(tabs[3])).toEqual(expected)
    expect(world.open.size).toBe(8)
    expect(tabs.flatMap(({ errors }) => errors)).toEqual([])
  })

  it('a page is reported as out of reach only when it answers no second call', async () => {
    const world = new LobbyTabs()
    world.deaf.add('t1')
    const tabs = await world.fill(3)
    await world.env.advance(11_000)
    expect(wordsOf(tabs[2])['t0']).toBeNull()
    expect(world.calls).toBe(3)
    world.deaf.clear()
    await world.env.advance(8_000)
    expect(wordsOf(tabs[2])).toEqual(ringOf(world, namesOf(3)))
    expect(world.calls).toBe(4)

    const other = new LobbyTabs()
    other.deaf.add('t1')
    const [first] = await other.fill(2)
    await other.env.advance(26_000)
    expect(wordsOf(first)['t0']).toEqual(['t1', null])
  })

  it('a frozen tab is reported as out of reach, and measured again when it resumes', async () => {
    const world = new LobbyTabs()
    const tabs = await world.fill(3)
    await world.env.advance(6_000)
    world.frozen.add('t1')
    await world.env.advance(20_000)
    expect(wordsOf(tabs[2])['t0']).toEqual(['t1', null])
    world.frozen.clear()
    await world.env.advance(60_000)
    expect(wordsOf(tabs[2])).toEqual(ringOf(world, namesOf(3)))
  })

  it('nobody calls a member that measures nothing of itself: it would not answer', async () => {
    const world = new LobbyTabs()
    const [first, second] = await world.fill(2)
    second.say({ type: 'update', info: infoOf('t1') })
    await world.env.advance(10_000)
    expect(wordsOf(first)).toEqual({ t0: null, t1: null })
    expect(world.open.size).toBe(0)
  })
})

describe('the server', () => {
  const box = 'b'.repeat(16)
  const idOf = (world: RendezvousWorld, tab: string) => world.last(tab, 'welcome').id

  it('passes boxes between neighbours of a waiting room, and drops all others', async () => {
    const world = new RendezvousWorld()
    await world.fill(5)
    for (const to of ['t1', 't4', 't2', 't0'])
      world.say('t0', { type: 'reach', to: idOf(world, to), box })
    const from = idOf(world, 't0')
    for (const tab of ['t1', 't4'])
      expect(world.all(tab, 'reach')).toEqual([{ type: 'reach', from, box }])
    for (const tab of ['t2', 't0']) expect(world.all(tab, 'reach')).toEqual([])
    world.assign(['t0', 't1', 't2', 't3', 't4'])
    world.say('t0', { type: 'reach', to: idOf(world, 't1'), box })
    expect(world.all('t1', 'reach')).toHaveLength(1)
    expect(world.all('t0', 'error')).toEqual([])
  })

  it('refuses boxes beyond what a link needs, and keeps the member', async () => {
    const world = new RendezvousWorld()
    await world.fill(2)
    const to = idOf(world, 't1')
    for (let i = 0; i <= limits.reachBurst; i++) world.say('t0', { type: 'reach', to, box })
    expect(world.refusal('t0')).toBe('too-many')
    expect(world.all('t1', 'reach')).toHaveLength(limits.reachBurst)
    expect(world.closed.size).toBe(0)
    await world.env.advance(10_000)
    world.say('t0', { type: 'reach', to, box })
    expect(world.all('t1', 'reach')).toHaveLength(limits.reachBurst + 1)
  })
})
