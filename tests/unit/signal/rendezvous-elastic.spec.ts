import { beforeEach, describe, expect, it } from 'vitest'
import { meshLimit, roomEdges } from '../../../src/peer/room/edges.ts'
import { limits } from '../../../src/peer/room/messages.ts'
import { limits as serverLimits } from '../../../src/peer/server/limits.ts'
import { infoOf } from '../../support/member-info.ts'
import { RendezvousWorld, roomA } from '../../support/rendezvous-world.ts'

/** Runs that continue when a rank is lost, whose members decide who the ranks are. */

let world: RendezvousWorld
beforeEach(() => {
  world = new RendezvousWorld()
})

const settings = { steps: 3 }

/** An elastic run of t0, t1, ..., which has begun. */
async function begun(size: number): Promise<string[]> {
  const ids = await world.fill(size)
  world.say('t0', { type: 'start', settings, isElastic: true })
  ready(ids)
  await world.tick()
  return ids
}

/** All say that the links of their newest assignment are up. */
function ready(ids: readonly string[]): void {
  for (const id of ids) world.say(id, { type: 'ready', epoch: world.last(id, 'assign').epoch })
}

/** Newcomers are in the room, and have been assigned their links. */
async function linking(...names: string[]): Promise<void> {
  for (const name of names) world.join(name)
  await world.env.advance(limits.joinMs)
}

const other = '9'.repeat(16)
const keyOf = (id: string) => world.last(id, 'assign').key!
const idOf = (name: string) => world.last(name, 'welcome').id
const namesOf = (id: string) => world.last(id, 'assign').members.map(({ name }) => name)
const peersOf = (id: string) => world.last(id, 'assign').links.map(({ peerRank }) => peerRank)

/** By the lobby: the names of the ranks, in order. */
async function ranksOf(id: string): Promise<string[]> {
  await world.tick()
  const ranks = world.last(id, 'lobby').members.filter(({ rank }) => rank !== null)
  return ranks.sort((a, b) => a.rank! - b.rank!).map(({ name }) => name)
}

function say(id: string, ballot: number, names: readonly string[]): void {
  world.say(id, { type: 'ranks', key: keyOf('t0'), ballot, ids: names.map(idOf) })
}

describe('a rank that is gone', () => {
  it.each([
    ['bye', true],
    ['a removal', false],
    ['the end of its connection', false],
    ['a refusal that closes its connection', false],
  ])('by %s: the others receive gone, and stay in their epoch', async (how, hasLeft) => {
    await begun(3)
    if (how === 'bye') world.say('t1', { type: 'bye' })
    else if (how === 'a removal') world.say('t0', { type: 'remove', id: idOf('t1') })
    else if (how === 'the end of its connection') world.server.lost('t1', 'closed')
    else world.server.receive('t1', 'no JSON')
    for (const id of ['t0', 't2']) {
      expect(world.last(id, 'gone')).toMatchObject({ name: 't1', rank: 1, hasLeft })
      expect(world.all(id, 'assign')).toHaveLength(1)
      expect(world.all(id, 'abort')).toEqual([])
    }
    expect(await ranksOf('t0')).toEqual(['t0', 't2'])
    expect(await world.state('t0')).toBe('running')
  })

  it('the last one ends the run, and members without a rank hear that it ended', async () => {
    await begun(2)
    await linking('late')
    world.say('t0', { type: 'bye' })
    expect(await world.state('late')).toBe('running')
    world.server.lost('t1', 'closed')
    expect(world.last('late', 'abort')).toMatchObject({
      epoch: 2,
      text: 'epoch 2: the run has ended before this tab could join it.',
    })
    expect(await world.state('late')).toBe('failed')
  })

  it.each(['before', 'after'])(
    'before the run has begun, %s others report its link down: the run begins without it',
    async (when) => {
      await world.fill(3)
      world.say('t0', { type: 'start', settings, isElastic: true })
      world.say('t2', { type: 'ready', epoch: 1 })
      if (when === 'before') world.server.lost('t0', 'closed')
      world.say('t1', { type: 'linkDown', epoch: 1, peerRank: 0, text: 'its tab closed' })
      if (when === 'after') world.server.lost('t0', 'closed')
      await world.env.advance(limits.joinMs)
      for (const id of ['t1', 't2']) {
        expect(world.last(id, 'assign')).toMatchObject({ epoch: 2, run: 2, worldSize: 2 })
        expect(world.all(id, 'abort')).toEqual([])
      }
      ready(['t1', 't2'])
      expect(world.last('t1', 'start')).toEqual({ type: 'start', epoch: 2, settings })
      expect(await ranksOf('t1')).toEqual(['t1', 't2'])
    },
  )

  it('before a run that is not elastic has begun: it fails', async () => {
    await world.fill(2)
    world.say('t0', { type: 'start', settings })
    world.say('t1', { type: 'bye' })
    expect(world.last('t0', 'abort').text).toContain('rank 1 (t1) is gone')
    expect(await world.state('t0')).toBe('failed')
  })

  it('a link that cannot be made between the only two ends the run before it begins', async () => {
    await world.fill(2)
    world.say('t0', { type: 'start', settings, isElastic: true })
    world.say('t0', { type: 'linkDown', epoch: 1, peerRank: 1, text: 'ICE failed' })
    await world.env.advance(limits.joinMs)
    expect(world.last('t1', 'abort')).toMatchObject({ code: 'peer.unreachable', ranks: [0, 1] })
  })

  it.each([
    ['is not ready', 'peer.late', () => undefined],
    [
      'says that it lacks links',
      'peer.unreachable',
      () => {
        for (const peerRank of [0, 2])
          world.say('t1', { type: 'linkDown', epoch: 1, peerRank, text: 'no way' })
        world.say('t1', { type: 'ready', epoch: 1 })
      },
    ],
  ])(
    'one of three that %s: the run begins without it, and it comes as a newcomer',
    async (_, code, act) => {
      await world.fill(3)
      world.say('t0', { type: 'start', settings, isElastic: true })
      for (const id of ['t0', 't2']) world.say(id, { type: 'ready', epoch: 1 })
      act()
      expect(world.all('t0', 'start')).toEqual([])
      await world.env.advance(limits.readyMs)
      expect(world.last('t1', 'abort')).toMatchObject({ epoch: 1, code, leftOut: 'again' })
      ready(['t0', 't2'])
      expect(await ranksOf('t0')).toEqual(['t0', 't2'])
      await world.env.advance(limits.joinMs)
      expect(world.last('t1', 'assign')).toMatchObject({ run: 2, joining: 1 })
    },
  )

  it('a link across a ring that cannot be made holds up nothing, one along it leaves out the later one', async () => {
    const ids = await world.fill(meshLimit + 2)
    world.say('t0', { type: 'start', settings, isElastic: true })
    const down = (peerRank: number) =>
      world.say('t1', { type: 'linkDown', epoch: 1, peerRank, text: 'no way' })
    down(3)
    await world.env.advance(limits.joinMs)
    expect(world.all('t0', 'assign')).toHaveLength(1)
    down(2)
    await world.env.advance(limits.joinMs)
    expect(namesOf('t0')).toEqual(ids.filter((id) => id !== 't2'))
  })

  it('a link that ends between two ranks changes nothing', async () => {
    await begun(2)
    world.say('t0', { type: 'linkDown', epoch: 1, peerRank: 1, text: 'ICE failed' })
    await world.env.advance(10_000)
    expect(world.inboxes.get('t1')!.map(({ type }) => type)).not.toContain('abort')
    expect(world.all('t1', 'assign')).toHaveLength(1)
    expect(await world.state('t1')).toBe('running')
  })
})

describe('newcomers', () => {
  it('get links to all, and are ranks once everyone is ready', async () => {
    const ids = await begun(2)
    world.join('late')
    await world.env.advance(limits.joinMs - 1)
    expect(world.all('late', 'assign')).toEqual([])
    await linking('later')
    const all = [...ids, 'late', 'later']
    for (const [rank, id] of all.entries()) {
      const part = { epoch: 2, run: 1, key: keyOf('t0'), rank, worldSize: 4, joining: 2 }
      expect(world.last(id, 'assign')).toMatchObject(part)
      expect(namesOf(id)).toEqual(all)
    }
    expect(all.map(peersOf)).toEqual([
      [2, 3],
      [2, 3],
      [0, 1, 3],
      [0, 1, 2],
    ])
    world.say('t1', { type: 'signal', epoch: 2, to: 2, attempt: 1, box: 'offer' })
    expect(world.last('late', 'signal')).toMatchObject({ epoch: 2, from: 1, box: 'offer' })
    expect(await world.state('t0')).toBe('running')
    ready(all.slice(1))
    expect(await ranksOf('t0')).toEqual(ids)
    ready(['t0'])
    for (const id of all) expect(world.last(id, 'start')).toMatchObject({ epoch: 2, settings })
    expect(await ranksOf('t0')).toEqual(all)
    // A candidate may come after another has brought the link up.
    world.say('late', { type: 'signal', epoch: 2, to: 0, attempt: 1, box: 'candidate' })
    expect(world.last('t0', 'signal')).toMatchObject({ epoch: 2, from: 2, box: 'candidate' })
  })

  it('that come while others are linked wait for the next linking', async () => {
    const ids = await begun(1)
    await linking('late')
    await linking('later')
    expect(world.all('later', 'assign')).toEqual([])
    await world.env.advance(10 * limits.joinMs)
    expect(world.all('later', 'assign')).toEqual([])
    ready([...ids, 'late'])
    await world.env.advance(limits.joinMs)
    expect(world.last('later', 'assign')).toMatchObject({ epoch: 3, run: 1, rank: 2, joining: 1 })
    expect(peersOf('late')).toEqual([2])
  })

  it('beyond 16 ranks have links by their places, and each one to rank 0; ranks get none to each other', async () => {
    const ids = await begun(meshLimit)
    await linking('a', 'b')
    const all = [...ids, 'a', 'b']
    const edges = roomEdges(all.length).filter((edge) => Math.max(...edge) >= meshLimit)
    const own = (rank: number) =>
      edges.flatMap(([a, b]) => (a === rank ? [b] : b === rank ? [a] : []))
    for (const [rank, id] of all.entries()) {
      const direct = rank === 0 ? [16, 17] : rank >= meshLimit ? [0] : []
      expect(new Set(peersOf(id))).toEqual(new Set([...own(rank), ...direct]))
    }
    expect(peersOf('t5')).toEqual([])
    ready(all)
    expect(await ranksOf('t0')).toEqual(all)
  })

  it('of a class join all, a few at once: nobody has more links to form than among 16', async () => {
    await begun(1)
    const names = Array.from({ length: limits.membersPerRoom - 1 }, (_, at) => `n${at}`)
    await linking(...names)
    for (let joined = 1; joined < limits.membersPerRoom; ) {
      const { worldSize, epoch } = world.last('t0', 'assign')
      const parts = ['t0', ...names].map((id) => world.all(id, 'assign').at(-1))
      const now = parts.flatMap((part) => (part?.epoch === epoch ? [part] : []))
      expect(now).toHaveLength(worldSize)
      expect(worldSize - joined).toBeGreaterThan(0)
      for (const { links } of now) expect(links.length).toBeLessThan(meshLimit)
      joined = worldSize
      ready(now.map(({ members, rank }) => members[rank]!.name))
      await world.env.advance(limits.joinMs)
    }
    expect(await ranksOf('t0')).toEqual(['t0', ...names])
    say('t0', 65_537, [...names].reverse())
    expect(await ranksOf('t0')).toEqual([...names].reverse())
  })

  it.each([2, meshLimit])(
    'to %i ranks get no links where one asks for another transport',
    async (size) => {
      await begun(size)
      world.join('odd', roomA, infoOf('odd', { transport: 'port' }))
      await linking('a', 'b')
      expect(namesOf('t0').slice(size - 1)).toEqual([`t${size - 1}`, 'a', 'b'])
      expect(world.all('odd', 'assign')).toEqual([])
    },
  )

  it('that get ready are ranks without a rank that is lost meanwhile', async () => {
    await begun(3)
    await linking('late')
    ready(['t0', 't2', 'late'])
    expect(world.all('late', 'start')).toEqual([])
    world.server.lost('t1', 'closed')
    for (const id of ['t0', 't2', 'late']) expect(world.last(id, 'start').epoch).toBe(2)
    expect(await ranksOf('t0')).toEqual(['t0', 't2', 'late'])
  })

  it('continue without another that is lost, and the ranks hear when the last one is', async () => {
    const ids = await begun(2)
    await linking('a', 'b')
    ready([...ids, 'a'])
    world.say('b', { type: 'bye' })
    for (const id of [...ids, 'a']) expect(world.last(id, 'start').epoch).toBe(2)
    await linking('c')
    world.server.lost('c', 'closed')
    for (const id of [...ids, 'a'])
      expect(world.last(id, 'abort')).toMatchObject({
        epoch: 3,
        ranks: [],
        text: 'epoch 3: no newcomer is left: the last one has left.',
      })
    expect(await world.state('t0')).toBe('running')
  })

  it.each(['a rank', 'the newcomer'])(
    'one whose link fails, as %s says, is left out for the rest of the run',
    async (who) => {
      const ids = await begun(2)
      await linking('late', 'other')
      ready(ids)
      if (who === 'a rank')
        world.say('t1', { type: 'linkDown', epoch: 2, peerRank: 2, text: 'no way' })
      else world.say('late', { type: 'linkDown', epoch: 2, peerRank: 1, text: 'no way' })
      const text =
        who === 'a rank'
          ? 'rank 1 (t1) lost its link to rank 2 (late): no way'
          : 'rank 2 (late) lost its link to rank 1 (t1): no way'
      expect(world.last('late', 'abort')).toMatchObject({
        epoch: 2,
        text: `epoch 2: the run continues without this tab: ${text}`,
      })
      // Also where the other side reports it too.
      world.say('t0', { type: 'linkDown', epoch: 2, peerRank: 2, text: 'no way' })
      expect(world.all('late', 'abort')).toHaveLength(1)
      world.say('late', { type: 'signal', epoch: 2, to: 0, attempt: 1, box: 'offer' })
      expect(world.refusal('late')).toBe('wrong-epoch')
      for (const id of ids) expect(world.all(id, 'abort')).toEqual([])
      ready(['other'])
      expect(world.last('other', 'start').epoch).toBe(2)
      await world.env.advance(10 * limits.joinMs)
      expect(world.all('late', 'assign')).toHaveLength(1)
    },
  )

  it('one that was a rank and cannot be linked is linked again once it is heard', async () => {
    const ids = await begun(3)
    say('t0', 65_537, ['t0', 't1'])
    world.say('t2', { type: 'out', key: keyOf('t2') })
    await world.env.advance(limits.joinMs)
    world.say('t0', { type: 'linkDown', epoch: 2, peerRank: 2, text: 'no way' })
    expect(world.last('t2', 'abort').text).toBe(
      'epoch 2: the run continues without this tab: rank 0 (t0) lost its link to rank 2 (t2): no way',
    )
    await world.env.advance(limits.pingMs + limits.joinMs)
    expect(world.last('t2', 'assign')).toMatchObject({ epoch: 3, joining: 1 })
    ready(ids)
    expect(await ranksOf('t0')).toEqual(ids)
  })

  it('that cannot be linked time and again get their links later, and fewer at once', async () => {
    await begun(4)
    say('t0', 65_537, ['t0'])
    for (const id of ['t1', 't2', 't3']) world.say(id, { type: 'out', key: keyOf(id) })
    await world.env.advance(limits.joinMs)
    const fail = () => {
      const { epoch, joining } = world.last('t0', 'assign')
      for (let rank = 1; rank <= joining!; rank++)
        world.say('t0', { type: 'linkDown', epoch, peerRank: rank, text: 'no way' })
      return [epoch, joining]
    }
    expect(fail()).toEqual([2, 3])
    await world.env.advance(limits.pingMs + limits.joinMs)
    expect(fail()).toEqual([3, 3])
    await world.env.advance(serverLimits.linkAgainMs - 1)
    expect(world.last('t0', 'assign').epoch).toBe(3)
    await world.env.advance(limits.pingMs + limits.joinMs)
    expect(fail()).toEqual([4, 1])
    // As many as leave nothing of a number of 32 bits that is shifted.
    for (let round = 0; round < 3 * 15; round++) {
      await world.env.advance(serverLimits.linkAgainMaxMs)
      expect(fail()[1]).toBe(1)
    }
  })

  it('one that aborts is left out for the rest of the run, and the ranks close its links', async () => {
    const ids = await begun(2)
    await linking('late')
    world.say('late', { type: 'abort', epoch: 2, text: 'no data here' })
    expect(world.last('late', 'abort').text).toBe(
      'epoch 2: the run continues without this tab: no data here',
    )
    for (const id of ids)
      expect(world.last(id, 'abort')).toMatchObject({
        epoch: 2,
        text: 'epoch 2: no newcomer is left: no data here',
      })
    ready(ids)
    for (const id of ids) expect(world.all(id, 'abort')).toHaveLength(1)
    await world.env.advance(10 * limits.joinMs)
    expect(world.all('late', 'assign')).toHaveLength(1)
    expect(await world.state('t0')).toBe('running')
  })

  it('of two that cannot be linked to each other the later one is left out', async () => {
    const ids = await begun(1)
    await linking('a', 'b')
    world.say('a', { type: 'linkDown', epoch: 2, peerRank: 2, text: 'no way' })
    expect(world.all('b', 'abort')).toHaveLength(1)
    ready([...ids, 'a'])
    expect(await ranksOf('t0')).toEqual(['t0', 'a'])
  })

  it('that come after one that is never ready wait no longer than two and a half minutes', async () => {
    const ids = await begun(2)
    await linking('never')
    const cameMs = world.env.now()
    world.join('late')
    await world.env.advance(limits.prepareMs + limits.joinMs)
    const { epoch } = world.last('late', 'assign')
    for (const id of [...ids, 'late']) world.say(id, { type: 'ready', epoch })
    world.say('never', { type: 'ping' })
    await world.env.advance(limits.readyMs)
    expect(world.last('late', 'start').epoch).toBe(epoch)
    expect(world.env.now() - cameMs).toBeLessThanOrEqual(150_000)
  })

  it('that are not ready 20 s after another one are left out until they are heard again', async () => {
    const ids = await begun(2)
    await linking('late', 'quick')
    await world.env.advance(limits.prepareMs - limits.readyMs - limits.joinMs)
    ready([...ids, 'quick'])
    await world.env.advance(limits.readyMs - limits.pingMs)
    expect(world.all('late', 'abort')).toEqual([])
    world.deaf.add('late')
    await world.env.advance(limits.pingMs)
    expect(world.last('late', 'abort').text).toBe(
      'epoch 2: the run continues without this tab: not every rank had its links in time: missing rank 2 (late).',
    )
    expect(await ranksOf('t0')).toEqual([...ids, 'quick'])
    await world.env.advance(2 * limits.joinMs)
    expect(world.all('late', 'assign')).toHaveLength(1)
    world.say('late', { type: 'pong' })
    await world.env.advance(limits.joinMs)
    expect(world.last('late', 'assign')).toMatchObject({ epoch: 3, rank: 3 })
  })

  it('are ranks also where a rank does not say that it is ready', async () => {
    await begun(2)
    await linking('late')
    ready(['t0', 'late'])
    await world.env.advance(limits.readyMs)
    expect(await ranksOf('t0')).toEqual(['t0', 't1', 'late'])
    expect(world.all('late', 'abort')).toEqual([])
  })
})

describe('ranks', () => {
  it('the newest ballot says who the ranks are, of those that are here', async () => {
    await begun(3)
    say('t2', 7, ['t2', 't0'])
    expect(await ranksOf('t0')).toEqual(['t2', 't0'])
    for (const ballot of [7, 6]) say('t0', ballot, ['t0', 't1', 't2'])
    expect(await ranksOf('t0')).toEqual(['t2', 't0'])
    world.server.lost('t2', 'closed')
    expect(await ranksOf('t0')).toEqual(['t0'])
    say('t1', 8, ['t1', 't2', 't0'])
    expect(await ranksOf('t0')).toEqual(['t1', 't0'])
  })

  it('a linked newcomer that the ballot lacks is a rank once a later ballot has it', async () => {
    const ids = await begun(2)
    await linking('late')
    ready([...ids, 'late'])
    say('t0', 1, ids)
    await world.env.advance(10 * limits.joinMs)
    expect(await ranksOf('t0')).toEqual(ids)
    expect(world.all('late', 'assign')).toHaveLength(1)
    say('t1', 2, ['late', ...ids])
    expect(await ranksOf('t0')).toEqual(['late', ...ids])
  })

  it('a member that is no longer a rank gets links only after it says out', async () => {
    await begun(3)
    say('t0', 1, ['t0', 't1'])
    await linking('late')
    expect(namesOf('late')).toEqual(['t0', 't1', 'late'])
    ready(['t0', 't1', 'late'])
    world.say('t2', { type: 'out', key: keyOf('t2') })
    await world.env.advance(limits.joinMs)
    expect(namesOf('t2')).toEqual(['t0', 't1', 'late', 't2'])
    expect(peersOf('t2')).toEqual([0, 1, 2])
    expect(peersOf('t0')).toEqual([3])
    ready(['t0', 't1', 'late', 't2'])
    expect(await ranksOf('t0')).toEqual(['t0', 't1', 'late', 't2'])
  })

  it('a rank that says out becomes a newcomer, and a linking continues without it', async () => {
    await begun(2)
    await linking('late')
    ready(['t0', 'late'])
    world.say('t1', { type: 'out', key: keyOf('t1') })
    expect(world.last('t1', 'abort').text).toBe('epoch 2: this tab is no rank now.')
    expect(await ranksOf('t0')).toEqual(['t0', 'late'])
    await world.env.advance(limits.joinMs)
    expect(namesOf('t1')).toEqual(['t0', 'late', 't1'])
  })

  it('a rank that says out has no rank until it is linked again, even by an older ballot', async () => {
    const ids = await begun(2)
    world.say('t1', { type: 'out', key: keyOf('t1') })
    say('t0', 1, ids)
    expect(await ranksOf('t0')).toEqual(['t0'])
    await world.env.advance(limits.joinMs)
    ready(ids)
    say('t0', 2, ['t1', 't0'])
    expect(await ranksOf('t0')).toEqual(['t1', 't0'])
  })

  it('only who has links to the ranks names them, and only in their run', async () => {
    const ids = await begun(2)
    await linking('late')
    say('late', 5, ['late'])
    expect(world.refusal('late')).toBe('wrong-epoch')
    world.say('t0', { type: 'ranks', key: other, ballot: 5, ids: [idOf('t1')] })
    expect(world.refusal('t0')).toBe('wrong-epoch')
    world.say('t1', { type: 'out', key: other })
    expect(world.refusal('t1')).toBe('wrong-epoch')
    expect(await ranksOf('t0')).toEqual(ids)
    say('t0', 5, ['t1', 't1'])
    expect(world.last('t0', 'error')).toMatchObject({ code: 'bad-message', isFatal: true })
  })
})

describe('the end', () => {
  it('comes once all ranks that are here are done, in any epochs', async () => {
    const ids = await begun(3)
    await linking('late')
    ready([...ids, 'late'])
    await linking('later')
    const reached = { value: 0.9, seconds: 6 }
    world.say('t0', { type: 'done', epoch: 1, reached })
    world.say('t1', { type: 'done', epoch: 3, reached: { value: 1, seconds: 1 } })
    world.say('late', { type: 'done', epoch: 2 })
    expect(world.all('t0', 'finished')).toEqual([])
    world.server.lost('t2', 'closed')
    for (const id of ['t0', 't1', 'late']) expect(world.last(id, 'finished').epoch).toBe(1)
    expect(world.last('later', 'abort')).toMatchObject({
      epoch: 3,
      text: 'epoch 3: the run has ended before this tab could join it.',
    })
    expect(await world.state('t0')).toBe('finished')
    expect(world.last('later', 'lobby').reached).toEqual(reached)
    world.say('t0', { type: 'start', settings })
    expect(world.last('later', 'assign').epoch).toBe(4)
  })

  it('an abort of a rank ends it for all, also for one that has lost its rank', async () => {
    await begun(3)
    say('t0', 1, ['t1', 't0'])
    await linking('late')
    world.say('t1', { type: 'abort', epoch: 2, text: 'epoch 2: out of memory' })
    const received = { epoch: 1, ranks: [0], text: 'epoch 1: rank 0 (t1): out of memory' }
    for (const id of ['t0', 't1']) expect(world.last(id, 'abort')).toMatchObject(received)
    expect(world.last('t2', 'abort').text).toBe('epoch 1: the run has ended without this tab.')
    expect(world.last('late', 'abort').epoch).toBe(2)
    expect(await world.state('t0')).toBe('failed')
  })

  it('done counts only in an epoch of the run', async () => {
    const ids = await begun(2)
    world.say('t0', { type: 'abort', epoch: 1, text: 'again' })
    world.say('t0', { type: 'start', settings, isElastic: true })
    ready(ids)
    for (const epoch of [1, 3]) {
      for (const id of ids) world.say(id, { type: 'done', epoch })
      expect(world.refusal('t0')).toBe('wrong-epoch')
      expect(await world.state('t0')).toBe('running')
    }
  })

  it('a rank that was done and joins again is not done', async () => {
    const ids = await begun(2)
    world.say('t1', { type: 'done', epoch: 1 })
    world.say('t1', { type: 'out', key: keyOf('t1') })
    await world.env.advance(limits.joinMs)
    ready(ids)
    world.say('t0', { type: 'done', epoch: 1 })
    expect(await world.state('t0')).toBe('running')
    world.say('t1', { type: 'done', epoch: 2 })
    expect(await world.state('t0')).toBe('finished')
  })
})

describe('half of a roster', () => {
  const life = (id: string) => `${idOf(id)}.1.${'_-'.repeat(8)}`
  const asks = (id: string, ballot: number, alive: string[], lives: string[]) => {
    world.say(id, {
      type: 'half',
      key: keyOf('t0'),
      ballot,
      alive: alive.map(life),
      lives: lives.map(life),
    })
    return world.last(id, 'half').first
  }

  it('the first half that asks has the run, and the other learns which that was', async () => {
    const [t0, t1] = await begun(2)
    expect(asks(t0!, 1, [t0!, t1!], [t0!])).toEqual([life(t0!)])
    expect(asks(t1!, 1, [t0!, t1!], [t1!])).toEqual([life(t0!)])
    expect(asks(t0!, 1, [t0!, t1!], [t0!])).toEqual([life(t0!)])
  })

  it('gets no answer when a newer roster without it is known', async () => {
    const [t0, t1] = await begun(2)
    say(t0!, 9, [t0!])
    expect(asks(t1!, 1, [t0!, t1!], [t1!])).toBeNull()
    expect(asks(t0!, 9, [t0!], [t0!])).toEqual([life(t0!)])
  })

  it('a newcomer that was linked has asked nobody before', async () => {
    const [t0] = await begun(1)
    await linking('late')
    ready([t0!, 'late'])
    expect(asks(t0!, 1, [t0!, 'late'], [t0!])).toEqual([life(t0!)])
  })

  it('one that leaves after it may have continued is reported with a newer ballot', async () => {
    const [t0, t1] = await begun(2)
    asks(t0!, 1, [t0!, t1!], [t0!])
    world.say(t0!, { type: 'bye' })
    expect(world.last(t1!, 'gone')).toMatchObject({ hasLeft: true, ballot: 2 })
  })

  it('gets no answer about a run that the room does not have', async () => {
    const [t0] = await begun(2)
    const alive = [life(t0!)]
    world.say(t0!, { type: 'half', key: other, ballot: 1, alive, lives: alive })
    expect(world.all(t0!, 'half')).toEqual([])
    expect(world.last(t0!, 'error').code).toBe('wrong-epoch')
  })
})
