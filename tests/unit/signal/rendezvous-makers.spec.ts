import { beforeEach, describe, expect, it } from 'vitest'
import { limits, protocolVersion } from '../../../src/peer/room/messages.ts'
import { infoOf } from '../../support/member-info.ts'
import { authKey, RendezvousWorld, roomA, roomB } from '../../support/rendezvous-world.ts'

/** Who is the room's maker: over reloads, when it is handed over, and whom it removes. */

let world: RendezvousWorld
beforeEach(() => {
  world = new RendezvousWorld()
})

const tokenOf = (letter: string) => letter.repeat(32)
const own = tokenOf('e')
const idOf = (tab: string) => world.last(tab, 'welcome').id
const enter = (tab: string, token?: string) => world.join(tab, roomA, infoOf(tab), authKey, token)

/** A room of `count` tabs t0, t1, …, each with a token: t0's is 000…, t1's 111…. */
async function fill(count: number): Promise<string[]> {
  const tabs = Array.from({ length: count }, (_, i) => `t${i}`)
  for (const [i, tab] of tabs.entries()) {
    if (i === 0) world.create(tab, roomA, infoOf(tab), tokenOf('0'))
    else enter(tab, tokenOf(String(i)))
  }
  await world.tick()
  return tabs
}

/** Members by name, in the order of the last lobby to `tab`; the maker is the first. */
async function reportOrder(tab: string): Promise<string[]> {
  await world.tick()
  const { maker, members } = world.last(tab, 'lobby')
  expect(maker).toBe(members[0].id)
  return members.map(({ name }) => name)
}

describe('a maker that comes back', () => {
  it('gets its room back from the next in line', async () => {
    await fill(3)
    world.say('t0', { type: 'bye' })
    expect(await reportOrder('t2')).toEqual(['t1', 't2'])
    enter('again', tokenOf('0'))
    expect(await reportOrder('t2')).toEqual(['again', 't1', 't2'])
    world.say('t1', { type: 'start', settings: null })
    expect(world.refusal('t1')).toBe('not-the-host')
    world.say('again', { type: 'start', settings: null })
    expect(world.last('again', 'assign')).toMatchObject({ rank: 0, worldSize: 3 })
  })

  it('so does each later host, the earliest of them first', async () => {
    await fill(4)
    world.say('t0', { type: 'bye' })
    world.say('t1', { type: 'bye' })
    expect(await reportOrder('t3')).toEqual(['t2', 't3'])
    world.server.lost('t2', 'reloaded')
    expect(await reportOrder('t3')).toEqual(['t3'])
    enter('t2-again', tokenOf('2'))
    expect(await reportOrder('t3')).toEqual(['t2-again', 't3'])
    enter('t1-again', tokenOf('1'))
    expect(await reportOrder('t3')).toEqual(['t1-again', 't2-again', 't3'])
    enter('t0-again', tokenOf('0'))
    expect(await reportOrder('t3')).toEqual(['t0-again', 't1-again', 't2-again', 't3'])
    // Whom the maker takes out has no more claim than who comes new.
    world.say('t0-again', { type: 'remove', id: idOf('t1-again') })
    enter('t1-anew', tokenOf('1'))
    world.say('t0-again', { type: 'bye' })
    expect(await reportOrder('t3')).toEqual(['t2-again', 't3', 't1-anew'])
    // What was before counts no more once the room is handed over.
    world.say('t2-again', { type: 'handOver', id: idOf('t1-anew') })
    enter('t0-late', tokenOf('0'))
    expect(await reportOrder('t3')).toEqual(['t1-anew', 't2-again', 't3', 't0-late'])
  })

  it('gets it back by the first rank of its tab, not by a further one', async () => {
    await fill(2)
    const enterMore = (name: string) =>
      world.join(name, roomA, infoOf(name), authKey, tokenOf('0'), { isFurther: true })
    enterMore('more')
    world.say('t0', { type: 'bye' })
    world.say('more', { type: 'bye' })
    enterMore('more again')
    expect(await reportOrder('t1')).toEqual(['t1', 'more again'])
    enter('t0-again', tokenOf('0'))
    expect(await reportOrder('t1')).toEqual(['t0-again', 't1', 'more again'])
  })

  it('a later host in a run gets the room back too when it is lost and comes back', async () => {
    const tabs = await fill(3)
    const epoch = await world.run(tabs)
    world.say('t0', { type: 'done', epoch })
    world.say('t0', { type: 'bye' })
    world.say('t1', { type: 'bye' })
    expect(await reportOrder('t2')).toEqual(['t2'])
    enter('t1-again', tokenOf('1'))
    expect(await reportOrder('t2')).toEqual(['t1-again', 't2'])
  })

  it('gets it back only with the token: not without, with another, or as a guest', async () => {
    await fill(2)
    world.say('t0', { type: 'bye' })
    enter('without')
    enter('wrong', tokenOf('9'))
    world.join('guest', roomA, null, authKey, tokenOf('0'))
    expect(world.last('guest', 'welcome')).toBeDefined()
    expect(await reportOrder('t1')).toEqual(['t1', 'without', 'wrong'])
  })

  it('nobody gets back a room that was made without a token', async () => {
    await world.fill(2)
    world.say('t0', { type: 'bye' })
    enter('again', own)
    enter('without')
    expect(await reportOrder('t1')).toEqual(['t1', 'again', 'without'])
  })

  it('gets it back once its old connection counts as gone', async () => {
    await fill(2)
    // Its first connection has broken off; the server has not noticed.
    world.deaf.add('t0')
    enter('again', tokenOf('0'))
    expect(await reportOrder('t1')).toEqual(['t0', 't1', 'again'])
    await world.env.advance(limits.goneMs + limits.pingMs)
    expect(await reportOrder('t1')).toEqual(['again', 't1'])
  })

  it('gets it back after the run that is on', async () => {
    await fill(3)
    world.say('t0', { type: 'bye' })
    await world.tick()
    const epoch = await world.run(['t1', 't2'])
    enter('again', tokenOf('0'))
    expect(await reportOrder('t2')).toEqual(['t1', 't2', 'again'])
    world.say('again', { type: 'start', settings: null })
    expect(world.refusal('again')).toBe('not-the-host')
    for (const tab of ['t1', 't2']) world.say(tab, { type: 'done', epoch })
    expect(await reportOrder('t2')).toEqual(['again', 't1', 't2'])
    expect(world.last('t2', 'lobby').state).toBe('finished')
  })

  it('gets it back when that run fails', async () => {
    await fill(3)
    world.say('t0', { type: 'bye' })
    await world.tick()
    await world.run(['t1', 't2'])
    enter('again', tokenOf('0'))
    world.say('t2', { type: 'bye' })
    expect(await reportOrder('t1')).toEqual(['again', 't1'])
  })

  it('continues with the settings that the next in line proposed, which then sees its choices', async () => {
    await fill(2)
    world.say('t0', { type: 'bye' })
    await world.tick()
    world.say('t1', { type: 'propose', settings: { seed: 5 } })
    expect(world.all('t1', 'proposed')).toHaveLength(0)
    enter('again', tokenOf('0'))
    expect(world.last('again', 'proposed').settings).toEqual({ seed: 5 })
    expect(world.last('t1', 'proposed').settings).toEqual({ seed: 5 })
    world.say('t1', { type: 'propose', settings: { seed: 6 } })
    expect(world.refusal('t1')).toBe('not-the-host')
    world.say('again', { type: 'propose', settings: { seed: 7 } })
    expect(world.last('t1', 'proposed').settings).toEqual({ seed: 7 })
  })

  it('does not get back a room that everyone has left: the first to come has it', async () => {
    await fill(1)
    world.join('store', roomA, null)
    world.say('t0', { type: 'bye' })
    enter('first', tokenOf('1'))
    enter('again', tokenOf('0'))
    expect(await reportOrder('again')).toEqual(['first', 'again'])
  })

  it('a token is of one room', async () => {
    await fill(1)
    world.create('u0', roomB)
    world.join('u1', roomB, infoOf('u1'), authKey, tokenOf('0'))
    await world.tick()
    expect(world.last('u1', 'lobby').maker).toBe(world.last('u0', 'welcome').id)
  })

  it('a token is sent to nobody, not even to its owner', async () => {
    const tabs = await fill(3)
    const epoch = await world.run(tabs)
    world.say('t0', { type: 'update', info: infoOf('t0', { hidden: true }) })
    for (const tab of tabs) world.say(tab, { type: 'done', epoch })
    world.say('t0', { type: 'handOver', id: idOf('t1') })
    world.say('t1', { type: 'remove', id: idOf('t2') })
    world.say('t0', { type: 'bye' })
    await world.env.advance(2 * limits.lobbyUpdateMs)
    const received = JSON.stringify([...world.inboxes])
    expect(received).toContain(idOf('t1'))
    for (const i of [0, 1, 2]) expect(received).not.toContain(tokenOf(String(i)))
  })

  it.each(['short', `${'0'.repeat(31)}g`, '0'.repeat(33), 7, null])(
    'an invalid token (%s) does not get in',
    async (token) => {
      await fill(1)
      world.open('odd')
      const message = { type: 'create', version: protocolVersion, room: roomB, authKey, token }
      world.server.receive('odd', JSON.stringify({ ...message, info: infoOf('odd') }))
      expect(world.refusal('odd')).toBe('bad-message')
      expect(world.closed.has('odd')).toBe(true)
    },
  )
})

describe('handing the room over', () => {
  it('makes the other the maker and rank 0, the one before the second', async () => {
    await fill(3)
    world.say('t0', { type: 'propose', settings: { seed: 3 } })
    world.say('t0', { type: 'handOver', id: idOf('t2') })
    expect(await reportOrder('t1')).toEqual(['t2', 't0', 't1'])
    // The one before sees from now on what the other chooses, and begins with what it chose itself.
    expect(world.last('t0', 'proposed').settings).toEqual({ seed: 3 })
    world.say('t0', { type: 'start', settings: null })
    expect(world.refusal('t0')).toBe('not-the-host')
    world.say('t2', { type: 'start', settings: null })
    expect(world.last('t2', 'assign').rank).toBe(0)
  })

  it('lasts over a reload of either', async () => {
    await fill(3)
    world.say('t0', { type: 'handOver', id: idOf('t2') })
    world.say('t0', { type: 'bye' })
    enter('t0-again', tokenOf('0'))
    expect(await reportOrder('t1')).toEqual(['t2', 't1', 't0-again'])
    world.say('t2', { type: 'bye' })
    expect(await reportOrder('t1')).toEqual(['t1', 't0-again'])
    enter('t2-again', tokenOf('2'))
    expect(await reportOrder('t1')).toEqual(['t2-again', 't1', 't0-again'])
  })

  it('to a further rank of a tab is to the first one', async () => {
    await fill(2)
    world.join('more', roomA, infoOf('more'), authKey, tokenOf('1'), { isFurther: true })
    world.say('t0', { type: 'handOver', id: idOf('more') })
    expect(await reportOrder('t0')).toEqual(['t1', 'more', 't0'])
  })

  it('to a member without a token: the former host does not get it back by a reload', async () => {
    await fill(1)
    enter('plain')
    world.say('t0', { type: 'handOver', id: idOf('plain') })
    world.say('t0', { type: 'bye' })
    enter('again', tokenOf('0'))
    expect(await reportOrder('plain')).toEqual(['plain', 'again'])
  })

  it('is the maker’s act, between runs, to another member that is here', async () => {
    const tabs = await fill(3)
    world.say('t1', { type: 'handOver', id: idOf('t1') })
    expect(world.refusal('t1')).toBe('not-the-host')
    for (const id of [idOf('t0'), 'ab'.repeat(8)]) {
      world.say('t0', { type: 'handOver', id })
      expect(world.refusal('t0')).toBe('unknown-member')
    }
    world.create('u0', roomB)
    world.say('t0', { type: 'handOver', id: idOf('u0') })
    expect(world.refusal('t0')).toBe('unknown-member')
    const epoch = await world.run(tabs)
    world.say('t0', { type: 'handOver', id: idOf('t1') })
    expect(world.refusal('t0')).toBe('wrong-state')
    for (const tab of tabs) world.say(tab, { type: 'done', epoch })
    expect(await reportOrder('t1')).toEqual(tabs)
    expect(world.closed.size).toBe(0)
  })
})

describe('removing a member', () => {
  it('ends its connection with the refusal removed, and the others learn who it was', async () => {
    await fill(3)
    world.say('t0', { type: 'remove', id: idOf('t1') })
    expect(world.last('t1', 'error')).toMatchObject({
      code: 'removed',
      text: 'removed by t0',
      about: null,
      isFatal: true,
    })
    expect(world.closed.has('t1')).toBe(true)
    expect(world.last('t2', 'gone')).toMatchObject({ name: 't1', text: 'removed by t0' })
    expect(await reportOrder('t2')).toEqual(['t0', 't2'])
    expect(world.server.counts.connections).toBe(2)
    // Not for ever: the link still lets it in.
    enter('t1-again', tokenOf('1'))
    expect(await reportOrder('t2')).toEqual(['t0', 't2', 't1-again'])
  })

  it('moves the others: each named member that is here gets its box, the removed one none', async () => {
    await fill(4)
    const ids = ['t1', 't2', 't3'].map(idOf)
    world.say('t3', { type: 'bye' })
    const boxes = ids.map((to, at) => ({ to, box: `box-${at}` }))
    world.say('t0', { type: 'remove', id: idOf('t1'), boxes })
    expect(world.last('t2', 'moved')).toEqual({ type: 'moved', from: idOf('t0'), box: 'box-1' })
    for (const tab of ['t0', 't1', 't3']) expect(world.all(tab, 'moved')).toEqual([])
    // The removed one comes back, and knows who was here.
    enter('t1-again')
    world.say('t0', { type: 'remove', id: ids[0], boxes })
    expect(world.refusal('t0')).toBe('unknown-member')
    expect(world.all('t1-again', 'moved')).toEqual([])
    expect(world.all('t2', 'moved')).toHaveLength(2)
  })

  it('moves nobody during a run, nor for a member that is not the host', async () => {
    const tabs = await fill(3)
    const boxes = [{ to: idOf('t2'), box: 'box' }]
    world.say('t1', { type: 'remove', id: idOf('t0'), boxes })
    expect(world.refusal('t1')).toBe('not-the-host')
    await world.run(tabs)
    world.say('t0', { type: 'remove', id: idOf('t1'), boxes })
    expect(world.refusal('t0')).toBe('wrong-state')
    expect(world.all('t2', 'moved')).toEqual([])
    expect(world.closed.has('t1')).toBe(false)
  })

  it.each(['assigned', 'running'])(
    'in a run that is %s ends that run by its name',
    async (state) => {
      const tabs = await fill(3)
      const epoch = state === 'running' ? await world.run(tabs) : world.assign(tabs)
      world.say('t0', { type: 'remove', id: idOf('t2') })
      for (const tab of ['t0', 't1']) {
        expect(world.last(tab, 'abort')).toMatchObject({
          epoch,
          code: 'peer.removed',
          ranks: [2],
        })
        expect(world.last(tab, 'abort').text).toBe(
          'epoch 1: rank 2 (t2) is gone: removed by t0. Start again without it, or once it is back.',
        )
      }
      expect(await world.state('t0')).toBe('failed')
      world.say('t0', { type: 'start', settings: null })
      expect(world.last('t1', 'assign')).toMatchObject({ epoch: 2, worldSize: 2 })
    },
  )

  it('of a member that waits for the next run does not end this one', async () => {
    const tabs = await fill(2)
    await world.run(tabs)
    enter('late')
    world.say('t0', { type: 'remove', id: idOf('late') })
    expect(world.refusal('late')).toBe('removed')
    expect(await world.state('t1')).toBe('running')
  })

  it('also works for a rank that the server has lost, while the ring trains', async () => {
    const tabs = await fill(3)
    await world.run(tabs)
    world.server.lost('t2', 'its connection ended')
    expect(await world.state('t0')).toBe('running')
    const detached = world.last('t0', 'lobby').members.find(({ attached }) => !attached)!
    world.say('t0', { type: 'remove', id: detached.id })
    expect(world.last('t1', 'abort').text).toContain('rank 2 (t2) is gone: removed by t0')
    expect(await reportOrder('t1')).toEqual(['t0', 't1'])
  })

  it('is the maker’s act, on another member that is here', async () => {
    await fill(3)
    for (const id of [idOf('t0'), idOf('t1'), idOf('t2'), 'ab'.repeat(8)]) {
      world.say('t1', { type: 'remove', id })
      expect(world.refusal('t1')).toBe('not-the-host')
    }
    world.create('u0', roomB)
    for (const id of [idOf('t0'), idOf('u0'), 'ab'.repeat(8)]) {
      world.say('t0', { type: 'remove', id })
      expect(world.refusal('t0')).toBe('unknown-member')
    }
    world.join('guest', roomA, null)
    world.say('guest', { type: 'remove', id: idOf('t0') })
    expect(world.refusal('guest')).toBe('not-a-member')
    world.open('stranger')
    world.say('stranger', { type: 'remove', id: idOf('t0') })
    expect(world.refusal('stranger')).toBe('not-in-a-room')
    expect(await reportOrder('t2')).toEqual(['t0', 't1', 't2'])
    expect(world.closed.size).toBe(0)
  })

  it('messages of a removed member are ignored', async () => {
    const tabs = await fill(2)
    await world.run(tabs)
    world.say('t0', { type: 'remove', id: idOf('t1') })
    const before = world.inboxes.get('t0')!.length
    world.say('t1', { type: 'abort', epoch: 1, text: 'I was here' })
    world.say('t1', { type: 'update', info: infoOf('t1') })
    world.server.lost('t1', 'closed')
    await world.tick()
    expect(world.all('t0', 'abort')).toHaveLength(1)
    expect(world.inboxes.get('t0')!.length - before).toBe(1) // the lobby
  })
})
