import { createHmac } from 'node:crypto'
import { beforeEach, describe, expect, it } from 'vitest'
import {
  type ClientMessage,
  limits,
  type MemberInfo,
  protocolVersion,
  type ServerMessage,
} from '../../../src/peer/messages.ts'
import { linkKind, Rendezvous, ringEdges } from '../../../src/peer/rendezvous.ts'
import { proofText } from '../../../src/peer/secret.ts'
import { VirtualEnv } from '../../support/virtual-env.ts'

const roomA = 'aa'.repeat(16)
const roomB = 'bb'.repeat(16)
const authKey = '01'.repeat(32)

function hmac(key: string, text: string): string {
  return createHmac('sha256', Buffer.from(key, 'hex')).update(text).digest('hex')
}

function infoOf(name: string, rest: Partial<MemberInfo> = {}): MemberInfo {
  return { name, adapter: null, hostTag: '', hidden: false, transport: 'auto', ...rest }
}

type Of<T extends ServerMessage['type']> = Extract<ServerMessage, { type: T }>

/** The server with tabs that answer pings by themselves. */
class World {
  readonly env = new VirtualEnv(7)
  readonly inboxes = new Map<string, ServerMessage[]>()
  readonly closed = new Map<string, string>()
  readonly deaf = new Set<string>()
  readonly server: Rendezvous
  /** Every message passes as JSON text, as it does on a socket. */
  constructor(custom: Partial<Record<keyof typeof limits, number>> = {}) {
    this.server = new Rendezvous(
      this.env,
      {
        send: (id, message) => {
          this.inboxes.get(id)!.push(JSON.parse(JSON.stringify(message)))
          if (message.type === 'ping' && !this.deaf.has(id)) this.say(id, { type: 'pong' })
        },
        close: (id, text) => this.closed.set(id, text),
        verify: (key, room, nonce, proof) => hmac(key, proofText(room, nonce)) === proof,
      },
      custom,
    )
  }

  open(id: string): void {
    this.inboxes.set(id, [])
    this.server.open(id)
  }
  say(id: string, message: ClientMessage): void {
    this.server.receive(id, JSON.stringify(message))
  }
  all<T extends ServerMessage['type']>(id: string, type: T): Of<T>[] {
    return this.inboxes.get(id)!.filter((one): one is Of<T> => one.type === type)
  }
  last<T extends ServerMessage['type']>(id: string, type: T): Of<T> {
    const found = this.all(id, type).at(-1)
    if (!found) throw new Error(`${id} got no ${type}`)
    return found
  }
  refusal(id: string): string {
    return this.last(id, 'error').code
  }
  create(id: string, room = roomA, info = infoOf(id)): void {
    this.open(id)
    this.say(id, { type: 'create', version: protocolVersion, room, authKey, info })
  }
  join(id: string, room = roomA, info = infoOf(id), key = authKey): void {
    this.open(id)
    const proof = hmac(key, proofText(room, this.last(id, 'challenge').nonce))
    this.say(id, { type: 'join', version: protocolVersion, room, proof, info })
  }
  /** A room with the tabs t0 (the maker), t1, … */
  async fill(count: number, room = roomA, prefix = 't'): Promise<string[]> {
    const ids = Array.from({ length: count }, (_, i) => `${prefix}${i}`)
    ids.forEach((id, i) => {
      if (i === 0) this.create(id, room)
      else this.join(id, room)
    })
    await this.tick()
    return ids
  }
  async tick(): Promise<void> {
    await this.env.advance(limits.lobbyDelayMs)
  }
  assign(ids: string[], settings = { steps: 3 }): number {
    this.say(ids[0], { type: 'start', settings })
    return this.last(ids[0], 'assign').epoch
  }
  async run(ids: string[]): Promise<number> {
    const epoch = this.assign(ids)
    for (const id of ids) this.say(id, { type: 'ready', epoch })
    await this.tick()
    return epoch
  }
  async state(id: string): Promise<string> {
    await this.tick()
    return this.last(id, 'lobby').state
  }
}

let world: World
beforeEach(() => {
  world = new World()
})

describe('entering a room', () => {
  it('challenges, welcomes, and lists members in order of joining', async () => {
    await world.fill(3)
    const lobby = world.last('t1', 'lobby')
    expect(lobby.members.map((one) => one.name)).toEqual(['t0', 't1', 't2'])
    expect(lobby.maker).toBe(world.last('t0', 'welcome').id)
    expect(lobby).toMatchObject({ state: 'lobby', epoch: 0 })
    expect(lobby.members.every((one) => one.rank === null && one.attached)).toBe(true)
  })

  it('tells several changes of a lobby in one message', async () => {
    await world.fill(5)
    expect(world.all('t0', 'lobby')).toHaveLength(1)
  })

  it('lets a member change what it says about itself', async () => {
    await world.fill(2)
    const info = infoOf('Laptop', { hidden: true, adapter: { vendor: 'intel' } })
    world.say('t1', { type: 'update', info })
    await world.tick()
    expect(world.last('t0', 'lobby').members[1]).toMatchObject(info)
  })

  it('tells what members change about themselves at once, then at most once a second', async () => {
    const ids = await world.fill(4)
    const told = () => world.all('t0', 'lobby').length
    const before = told()
    const change = (hidden: boolean) => {
      for (const id of ids) world.say(id, { type: 'update', info: infoOf(id, { hidden }) })
    }
    change(true)
    await world.tick()
    expect(told()).toBe(before + 1)
    for (let i = 0; i < 9; i++) {
      change(i % 2 === 1)
      await world.env.advance(100)
    }
    expect(told()).toBe(before + 1)
    await world.env.advance(limits.lobbyUpdateMs)
    expect(told()).toBe(before + 2)
    expect(world.last('t3', 'lobby').members.every((one) => !one.hidden)).toBe(true)
    // Who comes is not kept waiting by that, and brings what is due along.
    world.say('t1', { type: 'update', info: infoOf('new name') })
    world.join('late')
    await world.tick()
    expect(world.last('t0', 'lobby').members.map((one) => one.name)).toContain('new name')
    expect(world.last('t0', 'lobby').members).toHaveLength(5)
    await world.env.advance(2 * limits.lobbyUpdateMs)
    expect(told()).toBe(before + 3)
  })

  it('sends no message above the limit, whatever 64 members say of themselves', async () => {
    // A lone surrogate takes six characters of JSON, and nothing that a name may hold takes more.
    const rest = { adapter: 'x'.repeat(limits.adapterBytes - 2), hostTag: 'cd'.repeat(16) }
    const info = infoOf('\ud800'.repeat(limits.nameChars), { ...rest, transport: 'webrtc' })
    const ids = Array.from({ length: limits.membersPerRoom }, (_, i) => `t${i}`)
    ids.forEach((id, i) => {
      if (i === 0) world.create(id, roomA, info)
      else world.join(id, roomA, info)
    })
    await world.tick()
    await world.run(ids)
    expect(world.last('t63', 'lobby').members).toHaveLength(64)
    const sizes = world.inboxes.get('t63')!.map((one) => Buffer.byteLength(JSON.stringify(one)))
    expect(Math.max(...sizes)).toBeLessThanOrEqual(limits.messageBytes)
    const tooLarge = { ...info, adapter: 'x'.repeat(limits.adapterBytes - 1) }
    world.say('t63', { type: 'update', info: tooLarge })
    expect(world.refusal('t63')).toBe('bad-message')
  })

  it('refuses an unknown room, and lets the same connection create it', async () => {
    world.join('a')
    expect(world.refusal('a')).toBe('unknown-room')
    world.say('a', {
      type: 'create',
      version: protocolVersion,
      room: roomA,
      authKey,
      info: infoOf('a'),
    })
    expect(world.last('a', 'welcome').room).toBe(roomA)
  })

  it('refuses to create a room that is there', async () => {
    await world.fill(1)
    world.create('b')
    expect(world.refusal('b')).toBe('room-exists')
    expect(world.closed.has('b')).toBe(false)
  })

  it('refuses and closes a wrong proof', async () => {
    await world.fill(1)
    world.join('b', roomA, infoOf('b'), '02'.repeat(32))
    expect(world.refusal('b')).toBe('bad-proof')
    expect(world.closed.has('b')).toBe(true)
    expect(await world.state('t0')).toBe('lobby')
  })

  it('refuses a proof made for another nonce', async () => {
    await world.fill(1)
    world.open('spy')
    world.open('b')
    const proof = hmac(authKey, proofText(roomA, world.last('spy', 'challenge').nonce))
    world.say('b', {
      type: 'join',
      version: protocolVersion,
      room: roomA,
      proof,
      info: infoOf('b'),
    })
    expect(world.refusal('b')).toBe('bad-proof')
  })

  it('refuses a second room on one connection', async () => {
    await world.fill(1)
    world.say('t0', {
      type: 'create',
      version: protocolVersion,
      room: roomB,
      authKey,
      info: infoOf('t0'),
    })
    expect(world.refusal('t0')).toBe('already-in-a-room')
  })

  it('takes 64 members and refuses the 65th', async () => {
    const ids = await world.fill(64)
    expect(world.last(ids[63], 'lobby').members).toHaveLength(64)
    world.join('one-too-many')
    expect(world.refusal('one-too-many')).toBe('room-full')
  })

  it('refuses a room too many', async () => {
    world = new World({ rooms: 1 })
    await world.fill(1)
    world.create('b', roomB)
    expect(world.refusal('b')).toBe('server-full')
  })

  it('closes a connection that enters no room in 10 s', async () => {
    world.open('slow')
    await world.env.advance(limits.authenticateMs - 1)
    expect(world.closed.has('slow')).toBe(false)
    await world.env.advance(1)
    expect(world.refusal('slow')).toBe('too-slow')
    expect(world.closed.has('slow')).toBe(true)
  })

  it('forgets a room when its last member leaves', async () => {
    await world.fill(2)
    world.say('t0', { type: 'bye' })
    world.server.lost('t1', 'closed')
    expect(world.server.counts).toEqual({ rooms: 0, connections: 0 })
    world.join('late')
    expect(world.refusal('late')).toBe('unknown-room')
  })

  it('makes the next in order of joining the maker', async () => {
    await world.fill(3)
    world.say('t0', { type: 'bye' })
    await world.tick()
    expect(world.last('t2', 'lobby').maker).toBe(world.last('t1', 'welcome').id)
    expect(world.last('t2', 'gone')).toMatchObject({ name: 't0', rank: null, text: 'left' })
    world.say('t1', { type: 'start', settings: null })
    expect(world.last('t1', 'assign')).toMatchObject({ rank: 0, worldSize: 2 })
  })
})

describe('a run', () => {
  it('assigns ranks in order of joining and names one initiator for each link', async () => {
    for (const size of [1, 2, 3, 4, 5, 64]) {
      world = new World()
      const ids = await world.fill(size)
      world.assign(ids)
      const assigned = ids.map((id) => world.last(id, 'assign'))
      assigned.forEach((one, rank) => {
        expect(one).toMatchObject({ rank, worldSize: size, epoch: 1 })
        expect(one.members.map((member) => member.name)).toEqual(ids)
        expect(one.links).toHaveLength(Math.min(2, size - 1))
        for (const link of one.links) {
          const back = assigned[link.peerRank].links.find((other) => other.peerRank === rank)
          expect(back?.initiator).toBe(!link.initiator)
          expect(back?.kind).toBe(link.kind)
          const distance = (link.peerRank - rank + size) % size
          expect([1, size - 1]).toContain(distance)
        }
      })
    }
  })

  it('goes lobby, assigned, running, finished, and again with a higher epoch', async () => {
    const ids = await world.fill(3)
    const epoch = world.assign(ids)
    expect(await world.state('t1')).toBe('assigned')
    world.say('t0', { type: 'ready', epoch })
    world.say('t1', { type: 'ready', epoch })
    expect(world.all('t0', 'start')).toHaveLength(0)
    world.say('t2', { type: 'ready', epoch })
    expect(world.last('t2', 'start')).toMatchObject({ epoch, settings: { steps: 3 } })
    expect(await world.state('t1')).toBe('running')
    expect(world.last('t1', 'lobby').members.map((one) => one.rank)).toEqual([0, 1, 2])
    for (const id of ids) world.say(id, { type: 'done', epoch })
    expect(world.last('t0', 'finished').epoch).toBe(epoch)
    expect(await world.state('t1')).toBe('finished')
    expect(await world.run(ids)).toBe(epoch + 1)
    expect(await world.state('t1')).toBe('running')
  })

  it('a room of one starts alone', async () => {
    const ids = await world.fill(1)
    const epoch = await world.run(ids)
    expect(world.last('t0', 'assign').links).toEqual([])
    expect(world.last('t0', 'start').epoch).toBe(epoch)
  })

  it('only the maker starts, and only a waiting room', async () => {
    const ids = await world.fill(2)
    world.say('t1', { type: 'start', settings: null })
    expect(world.refusal('t1')).toBe('not-the-maker')
    world.assign(ids)
    world.say('t0', { type: 'start', settings: null })
    expect(world.refusal('t0')).toBe('wrong-state')
    expect(world.all('t0', 'assign')).toHaveLength(1)
  })

  it('who comes during a run waits for the next epoch', async () => {
    const ids = await world.fill(2)
    const epoch = await world.run(ids)
    world.join('late')
    await world.tick()
    expect(world.last('late', 'lobby')).toMatchObject({ state: 'running', epoch })
    expect(world.last('late', 'lobby').members[2].rank).toBeNull()
    world.say('late', { type: 'done', epoch })
    expect(world.refusal('late')).toBe('wrong-epoch')
    world.say('late', { type: 'bye' }) // and its leaving does not end the run
    expect(await world.state('t0')).toBe('running')
    for (const id of ids) world.say(id, { type: 'done', epoch })
    expect(await world.state('t0')).toBe('finished')
  })

  it('fails when not all are ready within 20 s, naming the late ones', async () => {
    const ids = await world.fill(3)
    const epoch = world.assign(ids)
    world.say('t0', { type: 'ready', epoch })
    await world.env.advance(limits.readyMs)
    const { text, rank } = world.last('t0', 'abort')
    expect(text).toContain('rank 1 (t1), rank 2 (t2)')
    expect(rank).toBe(1)
    expect(await world.state('t0')).toBe('failed')
    expect(await world.run(ids)).toBe(epoch + 1)
    await world.env.advance(limits.readyMs) // the old timer is gone
    expect(await world.state('t0')).toBe('running')
  })

  it.each(['assigned', 'running'])(
    'a rank that says bye while %s ends the run for all',
    async (when) => {
      const ids = await world.fill(4)
      if (when === 'assigned') world.assign(ids)
      else await world.run(ids)
      world.say('t2', { type: 'bye' })
      for (const id of ['t0', 't1', 't3']) {
        expect(world.last(id, 'abort')).toMatchObject({ epoch: 1, rank: 2 })
        expect(world.last(id, 'abort').text).toContain('rank 2 (t2) is gone: left')
        expect(world.last(id, 'gone')).toMatchObject({ name: 't2', rank: 2 })
      }
      expect(await world.state('t0')).toBe('failed')
      expect(world.last('t0', 'lobby').members).toHaveLength(3)
    },
  )

  it('a socket that ends while assigned ends the run', async () => {
    const ids = await world.fill(3)
    world.assign(ids)
    world.server.lost('t1', 'its connection ended (1006)')
    expect(world.last('t0', 'abort').text).toContain('rank 1 (t1) is gone: its connection ended')
  })

  it('a socket that ends while running detaches its rank, and the others finish', async () => {
    const ids = await world.fill(3)
    const epoch = await world.run(ids)
    world.server.lost('t1', 'its connection ended (1006)')
    expect(await world.state('t0')).toBe('running')
    expect(world.last('t0', 'lobby').members[1]).toMatchObject({ rank: 1, attached: false })
    world.say('t0', { type: 'done', epoch })
    world.say('t2', { type: 'done', epoch })
    expect(world.last('t2', 'finished').epoch).toBe(epoch)
    expect(await world.state('t0')).toBe('finished')
    expect(world.last('t0', 'lobby').members.map((one) => one.name)).toEqual(['t0', 't2'])
  })

  it('a detached rank that a neighbour misses too ends the run', async () => {
    const ids = await world.fill(3)
    const epoch = await world.run(ids)
    world.server.lost('t1', 'its connection ended (1006)')
    world.say('t0', { type: 'linkDown', epoch, peerRank: 1, text: 'silent for 8000 ms' })
    expect(world.last('t2', 'abort')).toMatchObject({ rank: 1 })
    expect(world.last('t2', 'abort').text).toContain(
      'rank 0 (t0) lost its link to rank 1 (t1): silent for 8000 ms',
    )
    expect(await world.state('t0')).toBe('failed')
  })

  it('a maker that is detached hands on only when the run is over', async () => {
    const ids = await world.fill(2)
    const epoch = await world.run(ids)
    world.server.lost('t0', 'gone')
    await world.tick()
    world.say('t1', { type: 'done', epoch })
    await world.tick()
    expect(world.last('t1', 'lobby').maker).toBe(world.last('t1', 'welcome').id)
  })

  it.each([1, 3])(
    '%i ranks that all lose their sockets leave the room to who waits in it',
    async (size) => {
      const ids = await world.fill(size)
      const epoch = await world.run(ids)
      world.join('late')
      world.join('later')
      await world.tick()
      for (const id of ids) {
        expect(await world.state('late')).toBe('running')
        world.server.lost(id, 'crashed')
      }
      expect(await world.state('late')).toBe('failed')
      const lobby = world.last('later', 'lobby')
      expect(lobby.members.map((one) => one.name)).toEqual(['late', 'later'])
      expect(lobby.maker).toBe(world.last('late', 'welcome').id)
      expect(await world.run(['late', 'later'])).toBe(epoch + 1)
      expect(await world.state('later')).toBe('running')
    },
  )

  it('a run whose last attached rank leaves it done has not finished for the detached one', async () => {
    const ids = await world.fill(3)
    const epoch = await world.run(ids)
    world.join('late')
    world.say('t1', { type: 'done', epoch })
    world.say('t1', { type: 'bye' })
    world.server.lost('t0', 'crashed')
    expect(await world.state('late')).toBe('running')
    world.server.lost('t2', 'crashed')
    expect(await world.state('late')).toBe('failed')
    expect(world.last('late', 'lobby').members.map((one) => one.name)).toEqual(['late'])
  })

  it('linkDown, abort: told to all with rank and reason', async () => {
    const ids = await world.fill(3)
    const first = await world.run(ids)
    world.say('t2', { type: 'linkDown', epoch: first, peerRank: 1, text: 'the channel closed' })
    expect(world.last('t1', 'abort').text).toMatch(/rank 2 \(t2\) lost its link to rank 1 \(t1\)/)
    const second = await world.run(ids)
    world.say('t1', { type: 'abort', epoch: second, text: 'the GPU was lost' })
    expect(world.last('t0', 'abort')).toMatchObject({ epoch: second, rank: 1 })
    expect(world.last('t0', 'abort').text).toContain('rank 1 (t1): the GPU was lost')
  })

  it('says the epoch and the link once, also when the reason says them', async () => {
    const ids = await world.fill(3)
    const told: string[] = []
    for (const reason of [
      { type: 'linkDown', peerRank: 1, text: 'link to rank 1 (t1): ended: its tab let go.' },
      { type: 'abort', text: 'allReduce #4 bucket 0 (epoch 2): rank 2 lost rank 1 (closed).' },
      { type: 'abort', text: 'epoch 3: rank 2 waited 15000 ms for HELLO from rank 1.' },
    ] as const) {
      const epoch = await world.run(ids)
      world.say('t2', { ...reason, epoch })
      told.push(world.last('t0', 'abort').text)
    }
    expect(told).toEqual([
      'epoch 1: rank 2 (t2) lost its link to rank 1 (t1): ended: its tab let go.',
      'epoch 2: rank 2 (t2): allReduce #4 bucket 0: rank 2 lost rank 1 (closed).',
      'epoch 3: rank 2 (t2) waited 15000 ms for HELLO from rank 1.',
    ])
  })

  it('a rank that is done may leave, and the run still finishes', async () => {
    const ids = await world.fill(3)
    const epoch = await world.run(ids)
    world.say('t1', { type: 'done', epoch })
    world.say('t1', { type: 'bye' })
    world.say('t0', { type: 'linkDown', epoch, peerRank: 1, text: 'closed' })
    expect(await world.state('t0')).toBe('running')
    world.say('t0', { type: 'done', epoch })
    world.say('t2', { type: 'done', epoch })
    expect(await world.state('t0')).toBe('finished')
  })

  it('refuses messages of another epoch without harm', async () => {
    const ids = await world.fill(2)
    const epoch = await world.run(ids)
    for (const type of ['ready', 'done'] as const) {
      world.say('t1', { type, epoch: epoch + 1 })
      expect(world.refusal('t1')).toBe('wrong-epoch')
    }
    world.say('t1', { type: 'abort', epoch: epoch + 1, text: 'x' })
    expect(world.all('t1', 'error')).toHaveLength(3)
    expect(world.closed.has('t1')).toBe(false)
    expect(await world.state('t0')).toBe('running')
  })

  it('refuses done before the start and a linkDown about a stranger', async () => {
    const ids = await world.fill(5)
    const epoch = world.assign(ids)
    world.say('t0', { type: 'done', epoch })
    expect(world.refusal('t0')).toBe('wrong-state')
    world.say('t0', { type: 'linkDown', epoch, peerRank: 2, text: 'x' })
    expect(world.refusal('t0')).toBe('unknown-rank')
    expect(await world.state('t0')).toBe('assigned')
  })
})

describe('signals', () => {
  it('are relayed to linked ranks only, and stamped with their sender', async () => {
    const ids = await world.fill(4)
    const epoch = world.assign(ids)
    world.say('t1', { type: 'signal', epoch, to: 2, attempt: 1, box: 'abc' })
    expect(world.last('t2', 'signal')).toEqual({
      type: 'signal',
      epoch,
      from: 1,
      attempt: 1,
      box: 'abc',
    })
    world.say('t1', { type: 'signal', epoch, to: 3, attempt: 1, box: 'abc' })
    expect(world.refusal('t1')).toBe('unknown-rank')
    expect(world.all('t3', 'signal')).toHaveLength(0)
    expect(world.all('t0', 'signal')).toHaveLength(0)
  })

  it('a claimed sender is refused as an unknown field', async () => {
    const ids = await world.fill(2)
    const epoch = world.assign(ids)
    const forged = { type: 'signal', epoch, to: 1, from: 1, attempt: 1, box: 'abc' }
    world.server.receive('t0', JSON.stringify(forged))
    expect(world.refusal('t0')).toBe('bad-message')
  })

  it('stay in their room', async () => {
    const a = await world.fill(2)
    const b = await world.fill(2, roomB, 'u')
    const epoch = world.assign(a)
    world.assign(b)
    world.say('t0', { type: 'signal', epoch, to: 1, attempt: 1, box: 'abc' })
    expect(world.all('t1', 'signal')).toHaveLength(1)
    expect(world.all('u1', 'signal')).toHaveLength(0)
  })

  it('cannot become a data plane', async () => {
    const ids = await world.fill(2)
    const epoch = world.assign(ids)
    const box = 'x'.repeat(limits.boxChars)
    for (let i = 0; i < 17; i++) {
      world.say('t0', { type: 'signal', epoch, to: 1, attempt: 1, box })
    }
    expect(world.refusal('t0')).toBe('too-large')
    expect(world.closed.has('t0')).toBe(true)
    expect(world.all('t1', 'signal')).toHaveLength(16)
    expect(world.last('t1', 'abort').rank).toBe(0)
  })
})

describe('hostile clients', () => {
  const hostile: [string, string, string][] = [
    ['no JSON', '{', 'bad-message'],
    ['nothing', '', 'bad-message'],
    ['null', 'null', 'bad-message'],
    ['an array', '[]', 'bad-message'],
    ['no type', '{}', 'bad-message'],
    ['an unknown type', '{"type":"shutdown"}', 'bad-message'],
    ['a field of Object', '{"type":"__proto__"}', 'bad-message'],
    ['a server message', '{"type":"abort","epoch":1,"rank":0,"text":"x"}', 'bad-message'],
    ['a negative epoch', '{"type":"ready","epoch":-1}', 'bad-message'],
    ['half an epoch', '{"type":"ready","epoch":1.5}', 'bad-message'],
    ['control characters', '{"type":"abort","epoch":1,"text":"\\u001b[2J"}', 'bad-message'],
    [
      'settings that are too large',
      JSON.stringify({ type: 'start', settings: 'é'.repeat(9_000) }),
      'bad-message',
    ],
    [
      'settings nested 20,000 deep',
      `{"type":"start","settings":${'['.repeat(20_000)}${']'.repeat(20_000)}}`,
      'bad-message',
    ],
    ['no settings', '{"type":"start"}', 'bad-message'],
    ['too many characters', JSON.stringify({ type: 'x'.repeat(70_000) }), 'too-large'],
    ['too many bytes', JSON.stringify({ type: '€'.repeat(30_000) }), 'too-large'],
  ]
  it.each(hostile)('%s: a clear error to that client alone', async (_, raw, code) => {
    const victims = await world.fill(2)
    const epoch = await world.run(victims)
    await world.fill(2, roomB, 'u')
    const before = victims.map((id) => world.inboxes.get(id)!.length)
    world.server.receive('u1', raw)
    expect(world.refusal('u1')).toBe(code)
    expect(world.last('u1', 'error').text.length).toBeGreaterThan(10)
    expect(world.closed.has('u1')).toBe(true)
    await world.tick()
    expect(world.last('u0', 'lobby').members.map((one) => one.name)).toEqual(['u0'])
    expect(victims.map((id) => world.inboxes.get(id)!.length)).toEqual(before)
    for (const id of victims) world.say(id, { type: 'done', epoch })
    expect(await world.state('t0')).toBe('finished')
  })

  it('another version is told so', async () => {
    world.open('old')
    const info = infoOf('old')
    const message = { type: 'create', version: 0, room: roomA, authKey, info }
    world.server.receive('old', JSON.stringify(message))
    expect(world.refusal('old')).toBe('wrong-version')
    expect(world.last('old', 'error').text).toContain('Reload')
  })

  it('anything but create and join is refused outside a room', async () => {
    world.open('a')
    world.say('a', { type: 'ready', epoch: 1 })
    expect(world.refusal('a')).toBe('not-in-a-room')
    world.say('a', { type: 'update', info: infoOf('a') })
    expect(world.all('a', 'error')).toHaveLength(2)
  })

  it('a flood is cut off; 60 at once and 20 a second are not', async () => {
    await world.fill(2)
    await world.env.advance(7_500)
    const hi = () => world.say('t1', { type: 'update', info: infoOf('t1') })
    for (let i = 0; i < limits.messageBurst; i++) hi()
    for (let second = 0; second < 4; second++) {
      await world.env.advance(1000)
      for (let i = 0; i < limits.messagesPerSec - 1; i++) hi() // one for a pong
    }
    expect(world.all('t1', 'error')).toEqual([])
    for (let i = 0; i < limits.messagesPerSec; i++) hi()
    expect(world.refusal('t1')).toBe('too-fast')
    expect(world.closed.has('t1')).toBe(true)
    expect(world.all('t1', 'error')).toHaveLength(1)
    await world.tick()
    expect(world.last('t0', 'lobby').members).toHaveLength(1)
  })

  it('trickled candidates of two links with two attempts fit the burst', async () => {
    const ids = await world.fill(3)
    const epoch = world.assign(ids)
    for (const attempt of [1, 2]) {
      for (const to of [0, 2]) {
        for (let i = 0; i < 12; i++) {
          world.say('t1', { type: 'signal', epoch, to, attempt, box: 'x'.repeat(1500) })
        }
      }
    }
    expect(world.all('t1', 'error')).toEqual([])
  })

  it('a silent client is gone after 15 s', async () => {
    await world.fill(2)
    world.deaf.add('t1')
    await world.env.advance(limits.goneMs - 1000)
    expect(world.closed.has('t1')).toBe(false)
    await world.env.advance(1000 + limits.pingMs)
    expect(world.closed.get('t1')).toContain('heard nothing')
    expect(world.last('t0', 'gone').name).toBe('t1')
    expect(world.closed.has('t0')).toBe(false)
  })

  it('what a closed connection still says is ignored', async () => {
    await world.fill(2)
    world.say('t1', { type: 'bye' })
    world.say('t1', { type: 'abort', epoch: 1, text: 'x' })
    world.server.lost('t1', 'again')
    world.server.lost('nobody', 'never there')
    expect(await world.state('t0')).toBe('lobby')
  })

  it('random bytes and random edits of good messages never throw nor reach another room', async () => {
    const env = new VirtualEnv(20261121)
    const victims = await world.fill(2)
    await world.run(victims)
    const good: ClientMessage[] = [
      { type: 'start', settings: { a: 1 } },
      { type: 'signal', epoch: 1, to: 1, attempt: 1, box: 'abc' },
      { type: 'linkDown', epoch: 1, peerRank: 1, text: 'x' },
      { type: 'update', info: infoOf('x') },
    ]
    const before = victims.map((id) => world.inboxes.get(id)!.length)
    let refused = 0
    for (let round = 0; round < 400; round++) {
      const id = `fuzz${round}`
      if (round % 2) world.open(id)
      else world.create(id, roomB)
      const bytes = env.random(4)
      const text = [...JSON.stringify(good[bytes[0] % good.length])]
      const at = bytes[1] % text.length
      text.splice(at, 1 + (bytes[2] % 3), String.fromCharCode(bytes[3]))
      world.server.receive(id, round % 5 ? text.join('') : String.fromCharCode(...env.random(40)))
      refused += world.all(id, 'error').length
      world.server.lost(id, 'end')
    }
    expect(refused).toBeGreaterThan(350)
    expect(victims.map((id) => world.inboxes.get(id)!.length)).toEqual(before)
    expect(world.server.counts).toEqual({ rooms: 1, connections: 2 })
  })

  it('a server that stops tells everyone', async () => {
    const ids = await world.fill(3)
    world.server.shutDown()
    for (const id of ids) expect(world.refusal(id)).toBe('shutting-down')
    expect(world.server.counts).toEqual({ rooms: 0, connections: 0 })
  })
})

describe('how two members are joined', () => {
  const tag = 'cd'.repeat(16)
  const other = 'ef'.repeat(16)
  it.each([
    ['auto', tag, 'auto', tag, 'port'],
    ['auto', tag, 'auto', other, 'webrtc'],
    ['auto', '', 'auto', '', 'webrtc'],
    ['webrtc', tag, 'auto', tag, 'webrtc'],
    ['webrtc', tag, 'webrtc', tag, 'webrtc'],
    ['port', tag, 'auto', tag, 'port'],
    ['port', tag, 'auto', other, null],
    ['port', tag, 'webrtc', tag, null],
  ] as const)('%s/%s with %s/%s: %s', (choice, hostTag, otherChoice, otherTag, kind) => {
    const a = infoOf('a', { transport: choice, hostTag })
    const b = infoOf('b', { transport: otherChoice, hostTag: otherTag })
    expect(linkKind(a, b)).toBe(kind)
    expect(linkKind(b, a)).toBe(kind)
  })

  it('a start that cannot be is refused to the maker, and the room waits on', async () => {
    world.create('t0', roomA, infoOf('t0', { transport: 'port', hostTag: tag }))
    world.join('t1', roomA, infoOf('t1', { transport: 'port', hostTag: other }))
    world.say('t0', { type: 'start', settings: null })
    expect(world.refusal('t0')).toBe('no-transport')
    expect(await world.state('t1')).toBe('lobby')
    expect(world.last('t1', 'lobby').epoch).toBe(0)
  })

  it('ring edges', async () => {
    expect(ringEdges(1)).toEqual([])
    expect(ringEdges(2)).toEqual([[0, 1]])
    expect(ringEdges(3)).toEqual([
      [0, 1],
      [1, 2],
      [2, 0],
    ])
  })
})
