import { beforeEach, expect, test } from 'vitest'
import { limits } from '../../../src/peer/room/messages.ts'
import { infoOf } from '../../support/member-info.ts'
import { RendezvousWorld } from '../../support/rendezvous-world.ts'

/** Members who take no rank. */

let world: RendezvousWorld
const watching = (name: string) => infoOf(name, { watches: true })
const id = (name: string) => world.last(name, 'welcome').id

beforeEach(async () => {
  world = new RendezvousWorld()
  world.create('t0')
  world.join('w', undefined, watching('w'))
  world.join('t1')
  await world.tick()
})

test('a room lists who watches apart, and starts without them', async () => {
  const { members, watchers } = world.last('t1', 'lobby')
  expect(members.map(({ name }) => name)).toEqual(['t0', 't1'])
  expect(watchers).toMatchObject([{ name: 'w', rank: null }])
  world.say('t0', { type: 'start', settings: null, isElastic: true })
  expect(world.last('t1', 'assign')).toMatchObject({ rank: 1, worldSize: 2 })
  expect(world.all('w', 'assign')).toEqual([])
  for (const name of ['t0', 't1']) world.say(name, { type: 'ready', epoch: 1 })
  world.say('w', { type: 'bye' })
  await world.tick()
  expect(world.last('t0', 'lobby')).toMatchObject({ state: 'running', members: [{}, {}] })
})

test('a member gets links to a run when it watches no longer', async () => {
  world.say('t0', { type: 'start', settings: null, isElastic: true })
  for (const name of ['t0', 't1']) world.say(name, { type: 'ready', epoch: 1 })
  await world.env.advance(10 * limits.joinMs)
  expect(world.all('w', 'assign')).toEqual([])
  world.say('w', { type: 'update', info: infoOf('w') })
  await world.env.advance(limits.joinMs)
  expect(world.last('w', 'assign')).toMatchObject({ joining: 1, worldSize: 3 })
})

test('a rank reaches all who watch during a run, as fast as the server allows, and they reach it', () => {
  world.say('t0', { type: 'start', settings: null })
  world.say('w', { type: 'reach', to: id('t0'), box: 'ask' })
  expect(world.last('t0', 'reach')).toMatchObject({ from: id('w'), box: 'ask' })
  for (let i = 0; i < limits.watchBoxBurst + 5; i++)
    world.say('t0', { type: 'reach', to: null, box: `b${i}` })
  expect(world.all('w', 'reach')).toHaveLength(limits.watchBoxBurst)
  expect(world.last('w', 'reach')).toMatchObject({ from: id('t0'), toWatchers: true })
  expect(world.all('t1', 'reach')).toEqual([])
})

test('a start is refused when all watch', async () => {
  for (const name of ['t0', 't1'])
    world.say(name, { type: 'update', info: infoOf(name, { watches: true }) })
  world.say('t0', { type: 'start', settings: null })
  expect(world.refusal('t0')).toBe('wrong-state')
})
