import { describe, expect, it } from 'vitest'
import { limits, type MemberInfo } from '../../../src/peer/room/messages.ts'
import { infoOf } from '../../support/member-info.ts'
import { RendezvousWorld } from '../../support/rendezvous-world.ts'

/** A class in one room: 30 laptops that send what laptops do, and what that costs each of them. */

const count = 30
const ids = Array.from({ length: count }, (_, index) => `t${index}`)
const laptop = (index: number, rest: Partial<MemberInfo> = {}): MemberInfo =>
  infoOf(`Chrome on Windows ${index}`, {
    adapter: {
      vendor: 'intel',
      architecture: 'gen-12lp',
      description: 'Intel(R) Iris(R) Xe Graphics',
      isSoftware: false,
      hasF16: true,
      hasSubgroups: true,
      hasTimestamps: true,
    },
    measured: { megaflops: 812_345 + index, serverUs: 3_400 },
    ...rest,
  })

/** As they come one after the other, `apartMs` from each other. */
async function fillClass(apartMs: number): Promise<RendezvousWorld> {
  const world = new RendezvousWorld()
  for (const [index, id] of ids.entries()) {
    if (index === 0) world.create(id, undefined, laptop(index))
    else world.join(id, undefined, laptop(index))
    await world.env.advance(apartMs)
  }
  await world.tick()
  return world
}

const bytesTo = (world: RendezvousWorld, id: string) =>
  world.inboxes.get(id)!.map((message) => Buffer.byteLength(JSON.stringify(message)))

describe('a room of 30', () => {
  it('join, start, one leaves, start again, all end; no message and no rate comes near a limit', async () => {
    const world = await fillClass(100)
    for (const id of ids) expect(world.last(id, 'lobby').members).toHaveLength(count)

    const epoch = await world.run(ids)
    for (const [rank, id] of ids.entries()) {
      const { links, members, worldSize } = world.last(id, 'assign')
      expect(worldSize).toBe(count)
      expect(members.every((member) => !('measured' in member))).toBe(true)
      const around = [(rank + 1) % count, (rank + count - 1) % count].sort((a, b) => a - b)
      const linked = links.map(({ peerRank }) => peerRank).sort((a, b) => a - b)
      // The run is not elastic: the loss of a link across the ring would end it.
      expect(linked).toEqual(around)
      expect(world.last(id, 'start').epoch).toBe(epoch)
    }
    expect(await world.state('t0')).toBe('running')

    world.say('t17', { type: 'bye' })
    await world.tick()
    for (const id of ids.filter((one) => one !== 't17')) {
      expect(world.last(id, 'abort')).toMatchObject({ epoch, ranks: [17] })
      expect(world.last(id, 'abort').text).toContain('Chrome on Windows 17')
      expect(world.last(id, 'lobby')).toMatchObject({ state: 'failed' })
      expect(world.last(id, 'lobby').members).toHaveLength(count - 1)
    }

    const rest = ids.filter((id) => id !== 't17')
    const again = await world.run(rest)
    for (const id of rest) world.say(id, { type: 'done', epoch: again })
    await world.tick()
    for (const id of rest) {
      expect(world.last(id, 'finished').epoch).toBe(again)
      expect(world.all(id, 'error')).toEqual([])
    }
    // The first saw all come.
    expect(Math.max(...bytesTo(world, 't0'))).toBeLessThan(limits.messageBytes / 3)
    expect(bytesTo(world, 't0').reduce((sum, bytes) => sum + bytes, 0)).toBeLessThan(500_000)
  })

  it('measurements of 30 members change the lobby once a second at most, and no member is refused', async () => {
    const world = await fillClass(10)
    const before = world.all('t0', 'lobby').length
    const seconds = 20
    for (let second = 0; second < seconds; second++) {
      for (const [index, id] of ids.entries())
        if ((second + index) % 2 === 0) {
          const measured = { megaflops: 800_000, serverUs: 1000 * (1 + second) }
          world.say(id, { type: 'update', info: laptop(index, { measured }) })
        }
      await world.env.advance(1000)
    }
    const lobbies = world.all('t0', 'lobby').length - before
    expect(lobbies).toBeGreaterThan(seconds / 2)
    expect(lobbies).toBeLessThanOrEqual(seconds + 1)
    expect(world.closed.size).toBe(0)
    expect(world.last('t29', 'lobby').members[0].measured?.serverUs).toBeGreaterThan(18_000)
  })

  it('answers a ping of each, in a run too, and counts it as any message', async () => {
    const world = await fillClass(10)
    await world.run(ids)
    for (const id of ids) world.say(id, { type: 'ping' })
    for (const id of ids) expect(world.all(id, 'pong')).toHaveLength(1)
    for (let i = 0; i <= limits.messageBurst; i++) world.say('t3', { type: 'ping' })
    expect(world.refusal('t3')).toBe('too-fast')
    expect(world.closed.has('t3')).toBe(true)
  })

  it.each([
    ['a fraction', { megaflops: 0.5 }],
    ['less than nothing', { serverUs: -1 }],
    ['more than a minute', { linkUs: [1, 6e7 + 1] as [number, number] }],
  ])('takes no measurement of %s', async (_, measured) => {
    const world = await fillClass(10)
    world.say('t1', { type: 'update', info: laptop(1, { measured }) })
    expect(world.refusal('t1')).toBe('bad-message')
  })
})
