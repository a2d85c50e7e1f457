import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, describe, expect, it, test } from 'vitest'
import type { ClientMessage } from '../../../src/peer/room/client-messages.ts'
import { protocolVersion as version } from '../../../src/peer/room/messages.ts'
import { limits } from '../../../src/peer/server/limits.ts'
import { drawMessage } from '../../support/fuzz/client-messages.ts'
import { infoOf } from '../../support/member-info.ts'
import { authKey, RendezvousWorld, roomA, tokenOf } from '../../support/rendezvous-world.ts'
import { repository } from '../../support/repository.ts'
import { Draw } from '../../support/simulation/draw.ts'

/** Who may say what, and how much: the tables of src/peer/protocol.md, and what the server does. */

const page = readFileSync(join(repository, 'src/peer/protocol.md'), 'utf8')
const section = page.slice(page.indexOf('## A tab and its server'), page.indexOf('## Errors'))
const rows = section
  .split('\n')
  .filter((line) => line.startsWith('| '))
  .map((line) => line.split('|').slice(1, -1))
const roles = [
  ...(['stranger', 'waiting', 'code giver', 'code user', 'link end'] as const),
  ...(['guest', 'member', 'maker'] as const),
]
type Role = (typeof roles)[number]

/** By message: the roles that the page names. */
const said = new Map(
  rows.flatMap(([names, who]) =>
    [...names.matchAll(/`(\w+)`/g)].map(([, name]) => [name, who.trim().split(', ')] as const),
  ),
)

/** The refusals by which the server says that this role may not say it. */
const refusals: { readonly [R in Role]: string } = {
  stranger: 'not-in-a-room',
  waiting: 'not-in-a-room',
  'code giver': 'wrong-state',
  'code user': 'wrong-state',
  'link end': 'wrong-state',
  guest: 'not-a-member',
  member: 'not-the-host',
  maker: '',
}
const entries = ['create', 'join', 'relay', 'giveCode', 'useCode']
const known = {
  ...{ room: roomA, authKey, proof: '0'.repeat(64), marker: 'm' },
  ...{ epoch: 1, ids: ['ab'.repeat(8)], runKey: 'cd'.repeat(8) },
}

/** A connection of each role, by its name. */
async function worldOfRoles(): Promise<RendezvousWorld> {
  const world = new RendezvousWorld({}, { asks: true, hasRelay: true })
  world.create('guest', roomA, null)
  world.join('maker', roomA, infoOf('maker'), authKey, tokenOf('maker'))
  world.join('member')
  world.say('maker', { type: 'letIn', id: world.last('maker', 'asks').asks[0].id, isLetIn: true })
  world.join('waiting')
  world.relay('link end', 0, 'c', roomA, tokenOf('maker'))
  world.giveCode('code giver')
  world.open('code user')
  const { name } = world.last('code giver', 'code')
  world.say('code user', { type: 'useCode', version, name, box: 'A'.repeat(64) })
  world.open('stranger')
  await world.tick()
  return world
}

describe.each(roles)('a %s', (role) => {
  it.each(drawn().filter(({ type }) => type !== 'bye' && type !== 'pong'))(
    'may send what the page lists, and nothing else: $type',
    async (message) => {
      const world = await worldOfRoles()
      const before = world.all(role, 'error').length
      world.say(role, message)
      const refused = world.all(role, 'error').at(before)?.code
      const isOutside = entries.includes(message.type)
      const isOfCodes = message.type === 'codeAnswer'
      const inside = isOfCodes ? 'wrong-state' : refusals[role]
      const expected = isOutside ? 'already-in-a-room' : inside
      if (said.get(message.type)!.includes(role)) expect(refused).not.toBe(expected)
      else expect(refused).toBe(expected)
      expect(world.closed.has('maker')).toBe(false)
    },
  )
})

function drawn(): ClientMessage[] {
  const types = [...said.keys()].filter((name) => !(name in limits) && name !== 'again')
  return types.map((type) => drawMessage(new Draw(1), known, type as ClientMessage['type']))
}

test('the page names each bound of the server', () => {
  const named = new Set([...section.matchAll(/`(\w+)`/g)].map(([, name]) => name))
  // Of messages: their own table says them in numbers. And one of clients.
  const others = ['messageBytes', 'settingsBytes', 'adapterBytes', 'boxChars', 'nameChars']
  const also = ['textChars', 'attempts', 'relayChannelChars', 'rostersAhead', 'storeCallsAtOnce']
  const missing = Object.keys(limits).filter((name) => !named.has(name))
  expect(missing.sort()).toEqual([...others, ...also].sort())
})

describe('bounds of what a message holds:', () => {
  let world: RendezvousWorld
  beforeEach(async () => {
    world = new RendezvousWorld()
    await world.fill(2)
  })
  const id = 'ab'.repeat(8)
  const key = 'cd'.repeat(8)
  const ids = (count: number) => Array.from({ length: count }, (_, at) => `${1e15 + at}`)
  const lives = (count: number) => Array(count).fill(`${id}.1`)
  const half = { type: 'half', key, ballot: 1, alive: lives(1), lives: lives(1) } as const
  const run = { key, run: 1, ballot: 1, ids: [id], settings: null }
  const entry = { version, room: roomA, info: infoOf('x'), authKey } as const
  const back = (again: Partial<typeof run>, epoch = 1): ClientMessage => {
    return { type: 'create', ...entry, again: { id, epoch, run: { ...run, ...again } } }
  }
  const text = (length: number) => 'x'.repeat(length)
  const max32 = 2 ** 32 - 1

  it.each<[string, (over: 0 | 1) => ClientMessage]>([
    ['an epoch', (over) => ({ type: 'ready', epoch: 2 ** 31 + over })],
    ['an epoch that a member brings', (over) => back({}, 2 ** 31 + over)],
    ['the first epoch of a run', (over) => back({ run: 2 ** 31 + over })],
    ['a ballot that a member brings', (over) => back({ ballot: max32 + over })],
    ['ranks that a member brings', (over) => back({ ids: ids(limits.membersPerRoom + over) })],
    ['a ballot', (over) => ({ type: 'ranks', key, ballot: max32 + over, ids: [id] })],
    [
      'ranks',
      (over) => ({ type: 'ranks', key, ballot: 1, ids: ids(limits.membersPerRoom + over) }),
    ],
    ['the ballot of a half', (over) => ({ ...half, ballot: max32 + over })],
    ['the lives of a half', (over) => ({ ...half, lives: lives(limits.membersPerRoom + over) })],
    ['the members of a half', (over) => ({ ...half, alive: lives(limits.membersPerRoom + over) })],
    ['a rank', (over) => ({ type: 'linkDown', epoch: 1, peerRank: 63 + over, text: '' })],
    [
      'an attempt',
      (over) => ({ type: 'signal', epoch: 1, to: 0, attempt: limits.attempts + over, box: 'b' }),
    ],
    ['a text', (over) => ({ type: 'abort', epoch: 1, text: text(limits.textChars + over) })],
    ['a box', (over) => ({ type: 'reach', to: id, box: text(limits.boxChars + over) })],
    [
      'boxes of a removal',
      (over) => ({
        ...{ type: 'remove', id },
        boxes: Array(limits.membersPerRoom + over).fill({ to: id, box: 'b' }),
      }),
    ],
    [
      'a channel',
      (over) => ({
        ...{ type: 'relay', version, room: roomA, proof: '0'.repeat(64) },
        ...{ side: 0, channel: text(limits.relayChannelChars + over) },
      }),
    ],
    ['a name', (over) => ({ type: 'update', info: infoOf(text(limits.nameChars + over)) })],
    [
      'an adapter',
      (over) => ({
        type: 'update',
        info: infoOf('x', { adapter: text(limits.adapterBytes - 2 + over) }),
      }),
    ],
    ['settings', (over) => ({ type: 'propose', settings: text(limits.settingsBytes - 2 + over) })],
  ])('%s above its bound ends the connection', (_, message) => {
    world.say('t0', message(0))
    expect(world.all('t0', 'error').filter(({ code }) => code === 'bad-message')).toEqual([])
    expect(world.closed.has('t0')).toBe(false)
    world.say('t0', message(1))
    expect(world.refusal('t0')).toBe('bad-message')
    expect(world.closed.has('t0')).toBe(true)
  })

  it('boxes of an epoch: more characters than its links may have end the connection', () => {
    world = new RendezvousWorld({ boxCharsPerLink: 10 })
    world.create('t0')
    world.join('t1')
    const epoch = world.assign(['t0', 't1'])
    const box = (length: number): ClientMessage => {
      return { type: 'signal', epoch, to: 1, attempt: 1, box: text(length) }
    }
    world.say('t0', box(10))
    expect(world.all('t1', 'signal')).toHaveLength(1)
    world.say('t0', box(1))
    expect(world.refusal('t0')).toBe('too-large')
    expect(world.closed.has('t0')).toBe(true)
  })

  it('tokens of former hosts: the first one’s is kept, and the last ones', async () => {
    world = new RendezvousWorld({ membersPerRoom: 2 })
    const enter = (name: string, token = name) =>
      world.join(name, roomA, infoOf(name), authKey, tokenOf(token))
    world.create('first', roomA, infoOf('first'), tokenOf('first'))
    for (const [next, last] of [
      ['second', 'first'],
      ['third', 'second'],
      ['fourth', 'third'],
    ]) {
      enter(next)
      world.say(last, { type: 'bye' })
    }
    const makerIs = async (name: string) => {
      await world.tick()
      expect(world.last(name, 'lobby').maker).toBe(world.last(name, 'welcome').id)
    }
    enter('again', 'second')
    await makerIs('fourth')
    world.say('again', { type: 'bye' })
    enter('once more', 'first')
    await makerIs('once more')
  })
})
