import { beforeEach, expect, it } from 'vitest'
import { limits } from '../../../src/peer/room/messages.ts'
import { RendezvousWorld } from '../../support/rendezvous-world.ts'

/** Runs that continue when a rank is lost, and admit newcomers. */

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

const namesOf = (id: string) => world.last(id, 'assign').members.map(({ name }) => name)

it.each(['bye', 'close'] as const)(
  'continues without a rank that is gone by %s, at once',
  async (how) => {
    await begun(3)
    if (how === 'bye') world.say('t1', { type: 'bye' })
    else world.server.lost('t1', 'closed')
    for (const [rank, id] of ['t0', 't2'].entries()) {
      expect(world.last(id, 'assign')).toMatchObject({ epoch: 2, run: 1, rank, worldSize: 2 })
      expect(namesOf(id)).toEqual(['t0', 't2'])
      expect(world.all(id, 'abort')).toEqual([])
    }
    ready(['t0', 't2'])
    expect(world.last('t2', 'start')).toMatchObject({ epoch: 2, settings })
    expect(await world.state('t0')).toBe('running')
    for (const id of ['t0', 't2']) world.say(id, { type: 'done', epoch: 2 })
    expect(world.last('t2', 'finished').epoch).toBe(2)
  },
)

it('the maker may go: the next one is rank 0', async () => {
  await begun(3)
  world.say('t0', { type: 'bye' })
  expect(world.last('t1', 'assign')).toMatchObject({ epoch: 2, rank: 0, worldSize: 2 })
})

it('where a link ends, a rank that does not answer is left out until it is heard again', async () => {
  await begun(3)
  world.deaf.add('t1')
  world.say('t0', { type: 'linkDown', epoch: 1, peerRank: 1, text: 'silent' })
  world.say('t2', { type: 'linkDown', epoch: 1, peerRank: 1, text: 'silent' })
  await world.env.advance(limits.doubtMs)
  expect(world.last('t1', 'abort')).toMatchObject({
    epoch: 1,
    rank: null,
    text: 'epoch 1: the run continues without this tab: rank 1 (t1) did not answer within 1500 ms.',
  })
  expect(namesOf('t0')).toEqual(['t0', 't2'])
  ready(['t0', 't2'])
  await world.env.advance(limits.joinMs)
  expect(world.last('t0', 'assign').epoch).toBe(2)
  // It is stopped, then woken.
  world.deaf.delete('t1')
  world.say('t1', { type: 'pong' })
  await world.env.advance(limits.joinMs)
  for (const id of ['t0', 't1', 't2']) {
    expect(world.last(id, 'assign')).toMatchObject({ epoch: 3, run: 1, worldSize: 3 })
    expect(namesOf(id)).toEqual(['t0', 't1', 't2'])
  }
})

it('where a link ends and all answer, they get new links', async () => {
  const ids = await begun(2)
  world.say('t0', { type: 'linkDown', epoch: 1, peerRank: 1, text: 'ICE failed' })
  await world.env.advance(limits.doubtMs)
  expect(world.last('t1', 'assign')).toMatchObject({ epoch: 2, run: 1, worldSize: 2 })
  ready(ids)
  expect(world.last('t1', 'start').epoch).toBe(2)
})

it('admits a newcomer; one that cannot be linked is left out for the rest of the run', async () => {
  const ids = await begun(2)
  world.join('late')
  await world.tick()
  expect(world.all('late', 'assign')).toEqual([])
  await world.env.advance(limits.joinMs)
  for (const id of [...ids, 'late'])
    expect(world.last(id, 'assign')).toMatchObject({ epoch: 2, run: 1, worldSize: 3 })
  expect(world.last('late', 'assign').rank).toBe(2)
  world.say('t1', { type: 'linkDown', epoch: 2, peerRank: 2, text: 'no way' })
  expect(world.last('late', 'abort').text).toBe(
    'epoch 2: the run continues without this tab: rank 1 (t1) lost its link to rank 2 (late): no way',
  )
  expect(namesOf('t0')).toEqual(ids)
  ready(ids)
  await world.env.advance(10 * limits.joinMs)
  expect(world.last('t0', 'assign').epoch).toBe(3)
})

it('a rank that is not ready in time is left out', async () => {
  const ids = await begun(3)
  world.say('t2', { type: 'bye' })
  ready(['t0'])
  await world.env.advance(limits.readyMs)
  expect(world.last('t1', 'abort').text).toContain('not every rank had its links')
  expect(world.last('t0', 'assign')).toMatchObject({ epoch: 3, worldSize: 1 })
  expect(ids).toHaveLength(3)
})

it('ranks that are done with the epoch before end the run; a newcomer hears why', async () => {
  const ids = await begun(2)
  world.join('late')
  await world.env.advance(limits.joinMs)
  world.say('t0', { type: 'done', epoch: 1 })
  expect(world.all('t0', 'finished')).toEqual([])
  world.say('t1', { type: 'done', epoch: 1 })
  for (const id of ids) expect(world.last(id, 'finished').epoch).toBe(1)
  expect(world.last('late', 'abort').text).toBe(
    'epoch 2: the run has ended before this tab could join it.',
  )
  expect(await world.state('t0')).toBe('finished')
})

it('ranks that came to the end before they took notice of the next epoch end the run', async () => {
  const ids = await begun(2)
  world.join('late')
  await world.env.advance(limits.joinMs)
  ready([...ids, 'late'])
  expect(world.last('t0', 'start').epoch).toBe(2)
  for (const id of ids) world.say(id, { type: 'done', epoch: 1 })
  for (const id of ids) expect(world.last(id, 'finished').epoch).toBe(1)
  expect(world.last('late', 'abort').text).toContain('the run has ended before this tab could join')
  expect(await world.state('t0')).toBe('finished')
})

it('a rank that is done does not end the run of those that lost another; they finish it', async () => {
  await begun(3)
  world.say('t2', { type: 'bye' })
  world.say('t0', { type: 'done', epoch: 1 })
  await world.env.advance(limits.joinMs)
  expect(world.last('t0', 'finished').epoch).toBe(1)
  expect(world.last('t1', 'assign')).toMatchObject({ epoch: 3, rank: 0, worldSize: 1 })
  ready(['t1'])
  world.say('t1', { type: 'done', epoch: 3 })
  expect(world.last('t1', 'finished').epoch).toBe(3)
  expect(await world.state('t1')).toBe('finished')
})

it('an abort ends it for all, and a loss before it has begun too', async () => {
  await begun(2)
  world.say('t1', { type: 'abort', epoch: 1, text: 'out of memory' })
  expect(world.last('t0', 'abort').text).toBe('epoch 1: rank 1 (t1): out of memory')
  world.say('t0', { type: 'start', settings, isElastic: true })
  world.say('t1', { type: 'bye' })
  expect(world.last('t0', 'abort').text).toContain('rank 1 (t1) is gone')
  expect(await world.state('t0')).toBe('failed')
})

it('a rank alone continues, and admits a newcomer', async () => {
  await begun(2)
  world.say('t0', { type: 'bye' })
  expect(world.last('t1', 'assign')).toMatchObject({ epoch: 2, rank: 0, worldSize: 1 })
  ready(['t1'])
  world.join('late')
  await world.env.advance(limits.joinMs)
  expect(world.last('late', 'assign')).toMatchObject({ epoch: 3, run: 1, rank: 1, worldSize: 2 })
})

it('the others do not wait for a newcomer that takes long to get ready', async () => {
  const ids = await begun(2)
  world.join('late')
  await world.env.advance(limits.joinMs + limits.prepareMs - 1)
  expect(world.all('late', 'abort')).toEqual([])
  ready([...ids, 'late'])
  expect(world.last('t0', 'start').epoch).toBe(2)
})

it('a rank that falls silent while a newcomer gets ready is left out, and so is the newcomer until the others train', async () => {
  await begun(3)
  world.join('late')
  await world.env.advance(limits.joinMs)
  expect(namesOf('t0')).toEqual(['t0', 't1', 't2', 'late'])
  world.deaf.add('t1')
  world.say('t0', { type: 'linkDown', epoch: 1, peerRank: 1, text: 'silent' })
  await world.env.advance(limits.doubtMs)
  expect(namesOf('t0')).toEqual(['t0', 't2'])
  expect(world.last('late', 'abort').text).toBe(
    'epoch 2: the run continues without this tab: a rank is gone. This tab joins once the others train again.',
  )
  // A link to a rank that the server has left out may end later.
  world.say('t2', { type: 'linkDown', epoch: 1, peerRank: 1, text: 'silent' })
  await world.env.advance(limits.doubtMs)
  ready(['t0', 't2'])
  expect(world.last('t0', 'start').epoch).toBe(3)
  await world.env.advance(limits.joinMs)
  expect(world.last('late', 'assign')).toMatchObject({ epoch: 4, run: 1, rank: 2 })
})

it('a rank lost while a newcomer gets ready: those that are left continue at once', async () => {
  await begun(2)
  world.join('late')
  await world.env.advance(limits.joinMs)
  world.say('t1', { type: 'bye' })
  expect(world.last('t0', 'assign')).toMatchObject({ epoch: 3, worldSize: 1 })
  expect(world.all('late', 'assign')).toHaveLength(1)
  ready(['t0'])
  expect(world.last('t0', 'start').epoch).toBe(3)
})

it('a rank lost soon after it joined: the others do not wait for a newcomer', async () => {
  const ids = await begun(2)
  world.join('late')
  await world.env.advance(limits.joinMs)
  ready([...ids, 'late'])
  world.join('later')
  world.say('late', { type: 'bye' })
  expect(namesOf('t0')).toEqual(['t0', 't1'])
  ready(ids)
  await world.env.advance(limits.joinMs)
  expect(namesOf('t0')).toEqual(['t0', 't1', 'later'])
})

it('a newcomer that fails is left out for the rest of the run, a rank from before ends it', async () => {
  await begun(2)
  world.join('late')
  await world.tick()
  await world.env.advance(limits.joinMs)
  ready(['t0', 't1', 'late'])
  world.say('late', { type: 'abort', epoch: 2, text: 'no data here' })
  expect(world.last('late', 'abort').text).toBe(
    'epoch 2: the run continues without this tab: no data here',
  )
  for (const id of ['t0', 't1']) {
    expect(namesOf(id)).toEqual(['t0', 't1'])
    expect(world.all(id, 'abort')).toEqual([])
  }
  ready(['t0', 't1'])
  await world.env.advance(10 * limits.joinMs)
  expect(world.last('t0', 'assign').epoch).toBe(3)
  world.say('t1', { type: 'abort', epoch: 3, text: 'the loss is NaN' })
  expect(world.last('t0', 'abort').text).toContain('the loss is NaN')
})
