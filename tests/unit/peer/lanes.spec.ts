import { describe, expect, test } from 'vitest'
import { LaneLink, withLane } from '../../../src/peer/link/lanes.ts'
import type { Link, LinkEnd } from '../../../src/peer/link/link.ts'
import { type MemoryLinkOptions, memoryPair } from '../../../src/peer/link/memory-link.ts'
import { Session } from '../../../src/peer/session/session.ts'
import { sessionDefaults } from '../../../src/peer/session/session-config.ts'
import { type Env, systemEnv } from '../../../src/util/env.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { linkConformance } from '../../support/link-conformance.ts'

interface Joined {
  near: LaneLink
  far: LaneLink
  /** The lanes below, from near to far. */
  lanes: [Link, Link][]
}

function join(env: Env, options: MemoryLinkOptions[]): Joined {
  const lanes = options.map((one) => memoryPair(env, one))
  const ends = [0, 1].map((side) => {
    const [first, ...others] = lanes.map((pair) => pair[side]!)
    const link = new LaneLink(first!, env)
    for (const other of others) link.add(other)
    return link
  })
  return { near: ends[0]!, far: ends[1]!, lanes }
}

linkConformance('four lanes of memory, each with delays of its own', {
  kind: 'memory',
  streamBytes: 8 * 2 ** 20,
  open: async () => {
    const options = [0, 1, 2, 3].map((max) => ({
      highWaterBytes: 256 * 1024,
      delayMs: () => Math.random() * max,
    }))
    return join(systemEnv, options)
  },
})

const text = (message: Uint8Array) => new TextDecoder().decode(message)
const bytes = (of: string) => new TextEncoder().encode(of)

/** What has come and how it ended, at one end. */
function heard(link: Link) {
  const messages: string[] = []
  const ends: LinkEnd[] = []
  link.onmessage = (message) => messages.push(text(message))
  link.onend = (end) => ends.push(end)
  return { messages, ends }
}

describe('lanes', () => {
  test('a message that overtakes others waits for them', async () => {
    const env = new VirtualEnv(1)
    // Room for one message each, so that they take turns.
    const { near, far, lanes } = join(env, [
      { delayMs: () => 30, highWaterBytes: 8 },
      { delayMs: () => 1, highWaterBytes: 8 },
      { delayMs: () => 10, highWaterBytes: 8 },
    ])
    const { messages } = heard(far)
    for (const one of ['a', 'b', 'c']) near.send(bytes(one))
    await env.advance(20)
    expect(messages).toEqual([])
    await env.advance(20)
    expect(messages).toEqual(['a', 'b', 'c'])
    const counts = await Promise.all(lanes.map(([one]) => one.stats()))
    expect(counts.map(({ messagesSent }) => messagesSent)).toEqual([1, 1, 1])
  })

  test('a lane is left out when it ends before it has carried anything', async () => {
    const env = new VirtualEnv(1)
    const { near, far, lanes } = join(env, [{}, {}, {}])
    const at = { near: heard(near), far: heard(far) }
    lanes[1]![0].close('did not come up')
    await env.advance(1)
    near.send(bytes('a'))
    far.send(bytes('b'))
    await env.advance(1000)
    expect([near.laneCount, far.laneCount]).toEqual([2, 2])
    expect(at.far).toEqual({ messages: ['a'], ends: [] })
    expect(at.near).toEqual({ messages: ['b'], ends: [] })
  })

  test('the link ends when a used lane ends, after the messages that other lanes still deliver', async () => {
    const env = new VirtualEnv(1)
    const { near, far, lanes } = join(env, [
      { delayMs: () => 1, highWaterBytes: 8 },
      { delayMs: () => 50, highWaterBytes: 8 },
    ])
    const at = { near: heard(near), far: heard(far) }
    near.send(bytes('a'))
    near.send(bytes('b'))
    await env.advance(2)
    lanes[0]![0].close('cable pulled')
    await env.advance(100)
    expect(at.far.messages).toEqual(['a', 'b'])
    expect(far.room()).toBe(0)
    await env.advance(200)
    expect(at.far.ends).toMatchObject([{ why: 'closed', detail: 'cable pulled' }])
    await env.advance(200)
    expect(at.near.ends).toHaveLength(1)
    far.send(bytes('c'))
    await env.advance(200)
    expect(at.near.messages).toEqual([])
  })

  test('stats count the bytes of lanes that have ended, also after the end of the link', async () => {
    const env = new VirtualEnv(1)
    const { near, far, lanes } = join(env, [{ highWaterBytes: 8 }, { highWaterBytes: 8 }])
    const { messages } = heard(far)
    const sentBytes = async (link: Link) => (await link.stats()).bytesSent
    near.send(bytes('abcdefgh'))
    near.send(bytes('ijklmnop'))
    await env.advance(1)
    expect(messages).toHaveLength(2)
    lanes[0]![0].close('cable pulled')
    expect(near.laneCount).toBe(1)
    expect(await sentBytes(near)).toBe(16)
    near.close('over')
    expect(near.laneCount).toBe(0)
    expect(await sentBytes(near)).toBe(16)
  })

  test.each([
    ['lost', 'drop', 0],
    ['sent twice', 'duplicate', 1],
  ] as const)('a message that a lane %s never passes for another', async (_, kind, failures) => {
    const env = new VirtualEnv(1)
    const fault = { kind, matches: () => true, injectionCount: 0 }
    const { near, far } = join(env, [{ forward: [fault] }, {}])
    const { messages, ends } = heard(far)
    near.send(bytes('a'))
    near.send(bytes('b'))
    await env.advance(10)
    expect(fault.injectionCount).toBe(1)
    // A lost one leaves silence, which the session's heartbeat ends.
    expect(messages).toEqual(kind === 'drop' ? [] : ['a'])
    expect(ends).toHaveLength(failures)
    if (failures > 0) {
      expect(ends[0]).toEqual({ why: 'failed', detail: 'expected message 1, got 0' })
    }
  })

  test('a message too short for a number ends the link with an error', async () => {
    const env = new VirtualEnv(1)
    const [[ownA, otherA], [ownB]] = [memoryPair(env), memoryPair(env)]
    const { ends } = heard(withLane(ownA, ownB, 1))
    otherA.send(bytes('abc'))
    await env.advance(1)
    expect(ends).toEqual([{ why: 'failed', detail: 'expected message 0, got NaN' }])
  })

  test('messages after a missing one hold a bounded number of bytes', async () => {
    const env = new VirtualEnv(1)
    const [[own, other], [second]] = [memoryPair(env), memoryPair(env)]
    const { messages, ends } = heard(withLane(own, second, 1))
    const message = new Uint8Array(64 * 1024)
    for (let number = 1; number < 1000; number++) {
      new DataView(message.buffer).setUint32(message.length - 4, number, true)
      other.send(message)
    }
    await env.advance(1)
    expect(messages).toEqual([])
    const [{ detail }] = ends as [LinkEnd]
    expect(detail).toBe('expected message 0, got 258')
  })

  test('the window grows with the number of lanes', async () => {
    const env = new VirtualEnv(1)
    const { near, far } = join(env, [{}, {}, {}])
    const common = { env, epoch: 1, size: 2 }
    const session = new Session({ ...common, link: near, rank: 0, peerRank: 1 })
    const other = new Session({ ...common, link: far, rank: 1, peerRank: 0 })
    await env.advance(10)
    await Promise.all([session.ready, other.ready])
    expect(session.windowBytes).toBe(3 * sessionDefaults.windowBytes.memory)
    session.close('over')
    other.close('over')
  })
})
