import { beforeEach, expect, test } from 'vitest'
import { limits } from '../../../src/peer/room/messages.ts'
import { limits as serverLimits } from '../../../src/peer/server/limits.ts'
import { infoOf } from '../../support/member-info.ts'
import { RendezvousWorld } from '../../support/rendezvous-world.ts'

/** Members that take no rank. */

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

test('a room lists onlookers apart and starts without them when some watch', async () => {
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

test('a newcomer that watches while its links form is linked again when it takes part', async () => {
  world.say('t0', { type: 'start', settings: null, isElastic: true })
  for (const name of ['t0', 't1']) world.say(name, { type: 'ready', epoch: 1 })
  world.say('w', { type: 'update', info: infoOf('w') })
  await world.env.advance(limits.joinMs)
  world.say('w', { type: 'update', info: watching('w') })
  expect(world.last('w', 'abort')).toMatchObject({ epoch: 2 })
  expect(world.last('w', 'abort').leftOut).toBeUndefined()
  expect(world.last('t0', 'abort').text).toContain('no newcomer is left')
  world.say('w', { type: 'abort', epoch: 2, text: 'it only watches' })
  await world.env.advance(10 * limits.joinMs)
  world.say('w', { type: 'update', info: infoOf('w') })
  await world.env.advance(limits.joinMs)
  expect(world.last('w', 'assign')).toMatchObject({ epoch: 3, joining: 1 })
})

test('a rank reaches the onlookers that asked it last when the run is on', async () => {
  world.join('w2', undefined, watching('w2'))
  world.join('late')
  await world.tick()
  world.say('t0', { type: 'start', settings: null })
  world.say('w', { type: 'reach', to: id('t0'), box: 'ask' })
  expect(world.last('t0', 'reach')).toMatchObject({ from: id('w'), box: 'ask' })
  for (const name of ['t0', 't1', 'w2']) world.say(name, { type: 'reach', to: null, box: name })
  expect(world.all('w', 'reach')).toMatchObject([{ from: id('t0'), toWatchers: true, box: 't0' }])
  world.say('w', { type: 'reach', to: id('t1'), box: 'ask' })
  for (const name of ['t0', 't1']) world.say(name, { type: 'reach', to: null, box: name })
  expect(world.all('w', 'reach').map(({ box }) => box)).toEqual(['t0', 't1'])
  for (const name of ['t0', 't1', 'w2']) expect(world.all(name, 'reach').length).toBeLessThan(2)
  expect(world.all('w2', 'reach')).toEqual([])
})

test('a room drops what is shown when its sender has no rank in the run that is on', async () => {
  world.say('t0', { type: 'start', settings: null, isElastic: true })
  world.join('late')
  await world.tick()
  world.say('w', { type: 'reach', to: id('late'), box: 'ask' })
  world.say('late', { type: 'reach', to: null, box: 'shown' })
  expect(world.all('w', 'reach')).toEqual([])
})

test('a room drops boxes from and to onlookers when their bytes are too many', async () => {
  const box = 'x'.repeat(limits.boxChars)
  world.say('w', { type: 'reach', to: id('w'), box })
  for (let i = 0; i < serverLimits.askBurst / limits.boxChars + 3; i++)
    world.say('w', { type: 'reach', to: id('t0'), box })
  expect(world.all('t0', 'reach')).toHaveLength(serverLimits.askBurst / limits.boxChars)
  for (let i = 0; i < serverLimits.shownBurst / limits.boxChars + 3; i++)
    world.say('t0', { type: 'reach', to: null, box })
  expect(world.all('w', 'reach')).toHaveLength(serverLimits.shownBurst / limits.boxChars)
  await world.env.advance(1000)
  for (let i = 0; i < 9; i++) world.say('t0', { type: 'reach', to: null, box })
  expect(world.all('w', 'reach')).toHaveLength(serverLimits.shownBurst / limits.boxChars + 4)
})

test('a room passes what ranks show to a member when it lacks the end of a run and has asked', () => {
  world.say('t1', { type: 'update', info: infoOf('t1', { missed: true }) })
  world.say('t0', { type: 'reach', to: null, box: 'unasked' })
  world.say('t1', { type: 'reach', to: id('t0'), box: 'ask' })
  world.say('t0', { type: 'reach', to: null, box: 'shown' })
  expect(world.all('t1', 'reach')).toMatchObject([
    { from: id('t0'), toWatchers: true, box: 'shown' },
  ])
  world.say('t0', { type: 'start', settings: null })
  expect(world.last('t1', 'assign')).toMatchObject({ rank: 1, worldSize: 2 })
})

test('a room refuses a start when all watch', async () => {
  for (const name of ['t0', 't1'])
    world.say(name, { type: 'update', info: infoOf(name, { watches: true }) })
  world.say('t0', { type: 'start', settings: null })
  expect(world.refusal('t0')).toBe('wrong-state')
})
