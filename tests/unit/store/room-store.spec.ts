import { beforeEach, describe, expect, it } from 'vitest'
import { limits } from '../../../src/peer/room/messages.ts'
import type { StoreCall } from '../../../src/peer/room/store-calls.ts'
import type { StoreAnswer } from '../../../src/peer/room/store-messages.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { infoOf } from '../../support/member-info.ts'
import { RendezvousWorld, roomA, roomB } from '../../support/rendezvous-world.ts'

/** A room's store on the server's own state machine, without sockets: who may call, limits, nonsense. */

class StoreWorld extends RendezvousWorld {
  private lastId = 0
  call(id: string, call: StoreCall): number {
    this.say(id, { type: 'store', id: ++this.lastId, call })
    return this.lastId
  }
  answers(id: string, call: number): StoreAnswer[] {
    return this.all(id, 'stored').flatMap((one) => (one.id === call ? [one.answer] : []))
  }
  /** The one answer to a call. */
  ask(id: string, call: StoreCall): StoreAnswer {
    const answers = this.answers(id, this.call(id, call))
    if (answers.length !== 1) throw new Error(`${id} got ${answers.length} answers`)
    return answers[0]
  }
  /** Guests of a room, which the first of them makes. */
  guests(count: number, room = roomA, prefix = 'g'): string[] {
    const ids = Array.from({ length: count }, (_, i) => `${prefix}${i}`)
    ids.forEach((id, i) => {
      if (i === 0) this.create(id, room, null)
      else this.join(id, room, null)
    })
    return ids
  }
}

const tag = (letter: string) => letter.repeat(43)
const set = (key: string, chars = 40): StoreCall => ({
  op: 'set',
  key,
  value: { box: 'b'.repeat(chars), tag: tag('t') },
})
const add = (key: string, amount = 1): StoreCall => ({ op: 'add', key, amount })
const get = (key: string, timeoutMs = 1000): StoreCall => ({ op: 'get', key, timeoutMs })
const wait = (keys: string[], timeoutMs = 1000): StoreCall => ({ op: 'wait', keys, timeoutMs })

let world: StoreWorld
beforeEach(() => {
  world = new StoreWorld()
})

describe('who may call', () => {
  it('nobody outside of a room; members and guests of it, on the same store', async () => {
    world.open('stranger')
    world.call('stranger', add('n'))
    expect(world.refusal('stranger')).toBe('not-in-a-room')
    await world.fill(1)
    world.join('guest', roomA, null)
    expect(world.ask('t0', add('n'))).toEqual({ kind: 'done', sum: 1 })
    expect(world.ask('guest', add('n'))).toEqual({ kind: 'done', sum: 2 })
    expect(world.all('stranger', 'stored')).toEqual([])
  })

  it('another room has another store', () => {
    world.guests(1)
    world.guests(1, roomB, 'h')
    world.ask('g0', add('n', 5))
    expect(world.ask('h0', add('n', 1))).toEqual({ kind: 'done', sum: 1 })
    expect(world.ask('h0', { op: 'numKeys' })).toEqual({ kind: 'count', count: 1 })
  })

  it('a guest proves the secret, as members do', () => {
    world.guests(1)
    world.join('liar', roomA, null, '02'.repeat(32))
    expect(world.refusal('liar')).toBe('bad-proof')
  })

  it('a guest is in no lobby and no run, and receives nothing of them', async () => {
    const [guest] = world.guests(1)
    world.join('t0')
    world.join('t1')
    await world.tick()
    const epoch = await world.run(['t0', 't1'])
    world.say(guest, { type: 'ready', epoch })
    expect(world.refusal(guest)).toBe('not-a-member')
    expect(world.last('t0', 'lobby').members).toHaveLength(2)
    expect(world.last('t0', 'assign').worldSize).toBe(2)
    expect(new Set(world.inboxes.get(guest)!.map((one) => one.type))).toEqual(
      new Set(['challenge', 'welcome', 'error']),
    )
  })

  it('takes 64 guests beside 64 members, and refuses the next of each', async () => {
    await world.fill(limits.membersPerRoom)
    for (let i = 0; i < limits.guestsPerRoom; i++) world.join(`g${i}`, roomA, null)
    world.join('one-too-many', roomA, null)
    expect(world.refusal('one-too-many')).toBe('room-full')
    expect(world.last('one-too-many', 'error').text).toContain('64 guests')
    world.join('t64')
    expect(world.last('t64', 'error').text).toContain('64 members')
    expect(world.all('g63', 'error')).toEqual([])
  })
})

describe('a room', () => {
  it('ends with the last one inside, guest or member, and its store with it', async () => {
    world.guests(1)
    await world.fill(0)
    world.join('t0')
    world.ask('g0', set('k'))
    world.server.lost('g0', 'closed')
    expect(world.ask('t0', { op: 'numKeys' })).toEqual({ kind: 'count', count: 1 })
    world.join('g1', roomA, null)
    world.say('t0', { type: 'bye' })
    expect(world.ask('g1', { op: 'numKeys' })).toEqual({ kind: 'count', count: 1 })
    world.say('g1', { type: 'bye' })
    expect(world.server.counts).toEqual({ rooms: 0, connections: 0 })
    expect(world.server.storeBytes).toBe(0)
    world.join('late', roomA, null)
    expect(world.refusal('late')).toBe('unknown-room')
  })

  it('that guests have kept continues with its next members, and epochs never repeat', async () => {
    world.guests(1)
    world.join('t0')
    world.join('t1')
    await world.tick()
    expect(await world.run(['t0', 't1'])).toBe(1)
    world.server.lost('t0', 'closed')
    world.server.lost('t1', 'closed')
    await world.env.advance(limits.readyMs)
    world.join('t2')
    await world.tick()
    expect(world.last('t2', 'lobby')).toMatchObject({ state: 'failed', epoch: 1 })
    expect(world.last('t2', 'lobby').members).toHaveLength(1)
    expect(await world.run(['t2'])).toBe(2)
  })

  it('members who leave before their links are up leave nothing behind for the next', async () => {
    world.guests(1)
    world.join('t0')
    await world.tick()
    world.assign(['t0'])
    world.say('t0', { type: 'bye' })
    await world.env.advance(2 * limits.readyMs)
    world.join('t1')
    await world.tick()
    expect(world.last('t1', 'lobby')).toMatchObject({ state: 'failed', epoch: 1 })
    expect(world.all('t1', 'abort')).toEqual([])
  })
})

describe('waits', () => {
  it('are answered later, once, with the value or the keys that did not come', async () => {
    world.guests(2)
    const got = world.call('g0', get('a'))
    const late = world.call('g0', wait(['a', 'b'], 500))
    expect(world.answers('g0', got)).toEqual([{ kind: 'waiting' }])
    world.ask('g1', set('a'))
    expect(world.answers('g0', got)[1]).toMatchObject({ kind: 'value', value: { tag: tag('t') } })
    await world.env.advance(500)
    expect(world.answers('g0', late)[1]).toEqual({ kind: 'late', missing: ['b'], count: 1 })
    await world.env.advance(1000)
    world.ask('g1', set('b'))
    expect(world.all('g0', 'stored')).toHaveLength(4)
  })

  it('of a connection that has ended are dropped: nothing is held, sent or timed', async () => {
    world.guests(2)
    const empty = world.server.storeBytes
    world.call('g0', get('a'))
    world.call('g0', wait(['a', 'b'], 0))
    expect(world.server.storeBytes).toBeGreaterThan(empty)
    const before = world.inboxes.get('g0')!.length
    world.server.lost('g0', 'closed')
    expect(world.server.storeBytes).toBe(empty)
    world.ask('g1', set('a'))
    world.ask('g1', set('b'))
    await world.env.advance(5000)
    expect(world.inboxes.get('g0')).toHaveLength(before)
  })
})

describe('compareSet', () => {
  const compareSet = (expected: { tag: string } | { counter: number }): StoreCall => ({
    op: 'compareSet',
    key: 'k',
    expected,
    orAbsent: false,
    desired: { counter: 9 },
  })
  it.each<[string, StoreCall | null, { tag: string } | { counter: number }, boolean]>([
    ['nothing', null, { counter: 0 }, false],
    ['a value', set('k'), { tag: tag('t') }, true],
    ['a value', set('k'), { tag: tag('u') }, false],
    ['a value', set('k'), { counter: 0 }, false],
    ['a counter', add('k', 5), { counter: 5 }, true],
    ['a counter', add('k', 5), { counter: 4 }, false],
    ['a counter', add('k', 5), { tag: tag('t') }, false],
  ])('in the place of %s: %o for %o is %s', (_, there, expected, isDone) => {
    world.guests(1)
    if (there) world.ask('g0', there)
    const before = there ? world.ask('g0', get('k')) : { kind: 'value', value: null }
    const answer = world.ask('g0', compareSet(expected))
    expect(answer).toEqual(isDone ? { kind: 'done' } : before)
    if (isDone) expect(world.ask('g0', get('k'))).toEqual({ kind: 'value', value: { counter: 9 } })
  })
})

describe('limits', () => {
  const refused = (id: string, call: StoreCall) => {
    const number = world.call(id, call)
    const error = world.last(id, 'error')
    expect(error).toMatchObject({ about: 'store', isFatal: false, call: number })
    return `${error.code}: ${error.text}`
  }

  it('the call that exceeds a limit rejects with it, and the connection stays', () => {
    world = new StoreWorld({
      storeKeysPerRoom: 3,
      storeKeyBytes: 10,
      storeValueBytes: 100,
      storeWaits: 2,
    })
    world.guests(2)
    expect(refused('g0', add('12345678901'))).toMatch(/^too-large: store: .*at most 10 bytes.*11/)
    expect(refused('g0', get('€€€€'))).toMatch(/^too-large.*at most 10 bytes, got 12/)
    expect(refused('g0', set('a', 200))).toMatch(/^too-large.*at most 100 bytes \(171 characters/)
    for (const key of ['a', 'b', 'c']) world.ask('g0', set(key))
    expect(refused('g0', set('d'))).toMatch(/^store-full.*at most 3 keys/)
    expect(refused('g0', add('d'))).toMatch(/^store-full.*at most 3 keys/)
    expect(
      refused('g0', {
        op: 'compareSet',
        key: 'd',
        expected: { tag: tag('t') },
        orAbsent: true,
        desired: { counter: 1 },
      }),
    ).toMatch(/^store-full/)
    world.ask('g0', set('c'))
    world.call('g0', get('x'))
    world.call('g0', get('y'))
    expect(refused('g0', get('z'))).toMatch(/^too-many.*at most 2 waits/)
    expect(world.ask('g0', get('a')).kind).toBe('value')
    world.call('g1', get('z'))
    expect(world.all('g1', 'error')).toEqual([])
    const max = Number.MAX_SAFE_INTEGER
    world.ask('g0', { op: 'deleteKey', key: 'a' })
    world.ask('g0', add('a', max))
    expect(refused('g0', add('a'))).toMatch(/^too-large.*sum between ±9007199254740991/)
  })

  it('bytes of a room count keys, values and waits, and are given back', () => {
    world = new StoreWorld({ storeBytesPerRoom: 400 })
    world.guests(2)
    // A key costs 64 besides, a tag 43.
    world.ask('g0', set('a', 100)) // 208
    expect(world.server.storeBytes).toBe(208)
    world.call('g1', wait(['b', 'c'])) // 130
    expect(world.server.storeBytes).toBe(338)
    expect(refused('g0', add('n'))).toMatch(/^store-full.*at most 400 bytes/)
    expect(refused('g1', wait(['d']))).toMatch(/^store-full/)
    world.server.lost('g1', 'closed')
    expect(world.ask('g0', add('n'))).toEqual({ kind: 'done', sum: 1 }) // 73
    world.ask('g0', set('a', 10))
    expect(world.server.storeBytes).toBe(118 + 73)
    world.ask('g0', set('n', 10))
    world.ask('g0', { op: 'deleteKey', key: 'a' })
    world.ask('g0', { op: 'deleteKey', key: 'n' })
    world.ask('g0', { op: 'deleteKey', key: 'n' })
    expect(world.server.storeBytes).toBe(0)
  })

  it('bytes of all rooms together have a limit, and are given back when a room ends', () => {
    world = new StoreWorld({ storeBytes: 250 })
    world.guests(1)
    world.guests(1, roomB, 'h')
    world.ask('g0', set('a', 100))
    expect(refused('h0', set('a', 100))).toMatch(/^store-full.*stores of all rooms/)
    world.server.lost('g0', 'closed')
    expect(world.ask('h0', set('a', 100))).toEqual({ kind: 'done' })
  })

  it('64 ranks that each read all and exchange offers with all, at once, are within the rate', () => {
    const ids = world.guests(64)
    const keys = (suffix: string) => ids.map((_, rank) => `${rank}${suffix}`)
    ids.forEach((id, rank) => {
      expect(world.ask(id, add('ranks'))).toEqual({ kind: 'done', sum: rank + 1 })
      world.ask(id, set(`${rank}/info`, 300))
    })
    for (const [rank, id] of ids.entries()) {
      expect(world.ask(id, wait(keys('/info')))).toEqual({ kind: 'done' })
      for (const key of keys('/info')) world.ask(id, get(key))
      for (const to of ids.keys()) if (to !== rank) world.ask(id, set(`${rank}>${to}`, 1600))
    }
    for (const [rank, id] of ids.entries()) {
      for (const from of ids.keys()) {
        if (from === rank) continue
        expect(world.ask(id, get(`${from}>${rank}`)).kind).toBe('value')
        world.ask(id, { op: 'deleteKey', key: `${from}>${rank}` })
      }
      expect(world.all(id, 'error')).toEqual([])
    }
  })

  it('a flood of calls is cut off, and takes no tokens from other messages', async () => {
    await world.fill(1)
    world.guests(1, roomB)
    for (let i = 0; i < limits.storeCallBurst; i++) world.call('t0', { op: 'numKeys' })
    world.say('t0', { type: 'update', info: infoOf('still here') })
    expect(world.all('t0', 'error')).toEqual([])
    world.call('t0', { op: 'numKeys' })
    expect(world.refusal('t0')).toBe('too-fast')
    expect(world.last('t0', 'error').text).toContain('100 store calls a second and 512 at once')
    expect(world.closed.has('t0')).toBe(true)
    expect(world.closed.has('g0')).toBe(false)
  })
})

describe('hostile clients', () => {
  const call = (body: unknown) => JSON.stringify({ type: 'store', id: 1, call: body })
  it.each([
    ['no call', '{"type":"store","id":1}'],
    ['no number', JSON.stringify({ type: 'store', call: add('n') })],
    ['half a number', JSON.stringify({ type: 'store', id: 1.5, call: add('n') })],
    ['an unknown op', call({ op: 'flush' })],
    ['a field of Object', call({ op: '__proto__' })],
    ['a key that is no text', call({ op: 'deleteKey', key: 7 })],
    ['a value that is not sealed', call({ op: 'set', key: 'a', value: 'plain' })],
    ['a counter in the place of a value', call({ op: 'set', key: 'a', value: { counter: 1 } })],
    [
      'a box of other characters',
      call({ op: 'set', key: 'a', value: { box: 'é', tag: tag('t') } }),
    ],
    ['a short tag', call({ op: 'set', key: 'a', value: { box: 'b', tag: 't' } })],
    ['half an amount', call(add('n', 0.5))],
    [
      'an amount beyond numbers',
      '{"type":"store","id":1,"call":{"op":"add","key":"n","amount":1e400}}',
    ],
    ['a negative time', call(get('a', -1))],
    ['a time that no timer waits', call(get('a', 2 ** 31))],
    ['more fields', call({ ...add('n'), extra: 1 })],
    ['keys that are no list', call({ op: 'wait', keys: 'a', timeoutMs: 0 })],
    ['an answer', '{"type":"stored","id":1,"answer":{"kind":"done"}}'],
  ])('%s: a clear error to that client alone', (_, raw) => {
    const [victim, other] = world.guests(2)
    const waiting = world.call(victim, get('a'))
    world.server.receive(other, raw)
    expect(world.refusal(other)).toBe('bad-message')
    expect(world.last(other, 'error').text).toMatch(/expected/)
    expect(world.closed.has(other)).toBe(true)
    expect(world.answers(victim, waiting)).toEqual([{ kind: 'waiting' }])
    expect(world.ask(victim, { op: 'numKeys' })).toEqual({ kind: 'count', count: 0 })
  })

  it('names of properties that all objects have are ordinary keys', () => {
    world.guests(1)
    for (const key of ['__proto__', 'constructor', 'toString', '']) {
      expect(world.ask('g0', { op: 'deleteKey', key })).toEqual({ kind: 'count', count: 0 })
      expect(world.ask('g0', add(key))).toEqual({ kind: 'done', sum: 1 })
    }
    expect(world.ask('g0', { op: 'numKeys' })).toEqual({ kind: 'count', count: 4 })
  })

  it('no answer is above the limit of a message', async () => {
    world.guests(2)
    const keys = Array.from({ length: 100 }, (_, i) => `${i}`.padEnd(limits.storeKeyBytes))
    world.call('g0', wait(keys))
    world.ask('g0', set('k', 21_000))
    world.ask('g0', get('k'))
    await world.env.advance(1000)
    expect(world.last('g0', 'stored').answer).toMatchObject({ kind: 'late', count: 100 })
    const sizes = world.inboxes.get('g0')!.map((one) => Buffer.byteLength(JSON.stringify(one)))
    expect(Math.max(...sizes)).toBeLessThanOrEqual(limits.messageBytes)
  })

  it('random edits of good calls never throw nor change another room; all bytes are given back', () => {
    const env = new VirtualEnv(20261122)
    const [victim] = world.guests(1)
    world.ask(victim, set('k'))
    const held = world.server.storeBytes
    const good: StoreCall[] = [
      set('k'),
      add('n'),
      get('x'),
      wait(['k', 'x']),
      { op: 'deleteKey', key: 'k' },
      { op: 'numKeys' },
      {
        op: 'compareSet',
        key: 'k',
        expected: { counter: 1 },
        orAbsent: true,
        desired: { counter: 2 },
      },
    ]
    let [refused, answered] = [0, 0]
    for (let round = 0; round < 700; round++) {
      const id = `fuzz${round}`
      world.create(id, roomB, null)
      const bytes = env.random(4)
      for (const call of good) world.call(id, call)
      const text = [
        ...JSON.stringify({ type: 'store', id: round, call: good[round % good.length] }),
      ]
      const at = bytes[1] % text.length
      text.splice(at, bytes[2] % 3, String.fromCharCode(bytes[3]))
      world.server.receive(id, text.join(''))
      refused += world.all(id, 'error').length
      answered += world.all(id, 'stored').length
      expect(world.all(id, 'error').some((one) => one.code === 'internal')).toBe(false)
      world.server.lost(id, 'end')
      expect(world.server.storeBytes).toBe(held)
    }
    expect(refused).toBeGreaterThan(350)
    expect(answered).toBeGreaterThan(700 * good.length)
    expect(world.ask(victim, { op: 'numKeys' })).toEqual({ kind: 'count', count: 1 })
    expect(world.server.counts).toEqual({ rooms: 1, connections: 1 })
  })
})
