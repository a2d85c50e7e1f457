import { beforeEach, describe, expect, it } from 'vitest'
import { limits } from '../../../src/peer/room/messages.ts'
import { RendezvousWorld, roomB } from '../../support/rendezvous-world.ts'

/** Runs of a room: how they start, finish and fail, and the signals that their ranks exchange. */

let world: RendezvousWorld
beforeEach(() => {
  world = new RendezvousWorld()
})

describe('a run', () => {
  it.each([
    ['a ring', false, [1]],
    ['a ring with chords', true, [1, 2, 4, 8, 16, 32]],
  ] as const)(
    'links all ranks to all, and in %s where that would be too many; elastic: %s',
    async (_, isElastic, offsets) => {
      for (const size of [1, 2, 3, 4, 5, 16, 17, 30, 64]) {
        world = new RendezvousWorld()
        const ids = await world.fill(size)
        world.say('t0', { type: 'start', settings: null, isElastic })
        const assigned = ids.map((id) => world.last(id, 'assign'))
        assigned.forEach((one, rank) => {
          expect(one).toMatchObject({ rank, worldSize: size, epoch: 1 })
          expect(one.members.map((member) => member.name)).toEqual(ids)
          const isLinked = (apart: number) => size <= 16 || offsets.some((one) => one === apart)
          const others = [...ids.keys()].filter((peer) => {
            const apart = (peer - rank + size) % size
            return peer !== rank && isLinked(Math.min(apart, size - apart))
          })
          expect(one.links.map(({ peerRank }) => peerRank).sort((a, b) => a - b)).toEqual(others)
          for (const link of one.links) {
            const back = assigned[link.peerRank].links.find((other) => other.peerRank === rank)
            expect(back?.initiator).toBe(!link.initiator)
            expect(back?.kind).toBe(link.kind)
          }
        })
      }
    },
  )

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
    expect(world.refusal('t1')).toBe('not-the-host')
    world.assign(ids)
    world.say('t0', { type: 'start', settings: null })
    expect(world.refusal('t0')).toBe('wrong-state')
    expect(world.all('t0', 'assign')).toHaveLength(1)
  })

  it('proposed and started settings are sent to the others, also to those that join later', async () => {
    await world.fill(3)
    const seen = (id: string) => world.all(id, 'proposed').map(({ settings }) => settings)
    world.say('t0', { type: 'propose', settings: { lr: 1 } })
    world.say('t0', { type: 'propose', settings: { lr: 2 } })
    expect([seen('t0'), seen('t1'), seen('t2')]).toEqual([
      [],
      [{ lr: 1 }, { lr: 2 }],
      [{ lr: 1 }, { lr: 2 }],
    ])
    world.join('late')
    await world.tick()
    expect(seen('late')).toEqual([{ lr: 2 }])
    world.say('t1', { type: 'propose', settings: null })
    expect(world.refusal('t1')).toBe('not-the-host')
    world.say('t0', { type: 'start', settings: { lr: 3 } })
    expect(seen('late')).toEqual([{ lr: 2 }, { lr: 3 }])
    // The next maker's word counts from then on.
    world.say('t0', { type: 'bye' })
    world.say('t1', { type: 'propose', settings: { lr: 4 } })
    expect(seen('late').at(-1)).toEqual({ lr: 4 })
  })

  it('a member waits for the next epoch when it joins during a run', async () => {
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
    const { text, code, ranks } = world.last('t0', 'abort')
    expect(text).toContain('rank 1 (t1), rank 2 (t2)')
    expect([code, ranks]).toEqual(['peer.late', [1, 2]])
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
        expect(world.last(id, 'abort')).toMatchObject({ epoch: 1, ranks: [2] })
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
    expect(world.last('t2', 'abort')).toMatchObject({ code: 'peer.lost', ranks: [1] })
    expect(world.last('t2', 'abort').text).toContain(
      'rank 0 (t0) lost its link to rank 1 (t1): silent for 8000 ms',
    )
    expect(await world.state('t0')).toBe('failed')
  })

  it('a detached host is replaced only after the run', async () => {
    const ids = await world.fill(2)
    const epoch = await world.run(ids)
    world.server.lost('t0', 'gone')
    await world.tick()
    world.say('t1', { type: 'done', epoch })
    await world.tick()
    expect(world.last('t1', 'lobby').maker).toBe(world.last('t1', 'welcome').id)
  })

  it.each([1, 3])(
    '%i ranks that all lose their sockets leave the room to those that wait in it',
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

  it('a run fails when all ranks are gone and not all were done', async () => {
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

  it('linkDown and abort are sent to all with rank and reason', async () => {
    const ids = await world.fill(3)
    const first = await world.run(ids)
    world.say('t2', { type: 'linkDown', epoch: first, peerRank: 1, text: 'the channel closed' })
    expect(world.last('t1', 'abort').text).toMatch(/rank 2 \(t2\) lost its link to rank 1 \(t1\)/)
    const second = await world.run(ids)
    world.say('t1', { type: 'abort', epoch: second, text: 'the GPU was lost' })
    expect(world.last('t0', 'abort')).toMatchObject({
      epoch: second,
      code: 'peer.aborted',
      ranks: [1],
    })
    expect(world.last('t0', 'abort').text).toContain('rank 1 (t1): the GPU was lost')
  })

  it('errors name the epoch and the link once, even when the reason has them', async () => {
    const ids = await world.fill(3)
    const received: string[] = []
    for (const reason of [
      {
        type: 'linkDown',
        peerRank: 1,
        text: 'link to rank 1 (t1): ended: its tab closed.',
      },
      { type: 'abort', text: 'rank 2 lost rank 1: its tab closed. (allReduce #4 bucket 0)' },
      { type: 'abort', text: 'rank 2 waited 15000 ms for HELLO from rank 1.' },
    ] as const) {
      const epoch = await world.run(ids)
      world.say('t2', { ...reason, epoch })
      received.push(world.last('t0', 'abort').text)
    }
    expect(received).toEqual([
      'epoch 1: rank 2 (t2) lost its link to rank 1 (t1): ended: its tab closed.',
      'epoch 2: rank 2 (t2) lost rank 1: its tab closed. (allReduce #4 bucket 0)',
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
    const ids = await world.fill(17)
    const epoch = world.assign(ids)
    world.say('t0', { type: 'done', epoch })
    expect(world.refusal('t0')).toBe('wrong-state')
    world.say('t0', { type: 'linkDown', epoch, peerRank: 3, text: 'x' })
    expect(world.refusal('t0')).toBe('unknown-rank')
    expect(await world.state('t0')).toBe('assigned')
  })
})

describe('signals', () => {
  it('are relayed to linked ranks only, and stamped with their sender', async () => {
    const ids = await world.fill(17)
    const epoch = world.assign(ids)
    world.say('t1', { type: 'signal', epoch, to: 2, attempt: 1, box: 'abc' })
    expect(world.last('t2', 'signal')).toEqual({
      type: 'signal',
      epoch,
      from: 1,
      attempt: 1,
      box: 'abc',
    })
    world.say('t1', { type: 'signal', epoch, to: 4, attempt: 1, box: 'abc' })
    expect(world.refusal('t1')).toBe('unknown-rank')
    expect(world.all('t4', 'signal')).toHaveLength(0)
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
    for (let i = 0; i < 9; i++) {
      world.say('t0', { type: 'signal', epoch, to: 1, attempt: 1, box })
    }
    expect(world.refusal('t0')).toBe('too-large')
    expect(world.closed.has('t0')).toBe(true)
    expect(world.all('t1', 'signal')).toHaveLength(8)
    expect(world.last('t1', 'abort')).toMatchObject({ code: 'peer.lost', ranks: [0] })
  })
})
