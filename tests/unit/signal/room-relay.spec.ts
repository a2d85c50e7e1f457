import { describe, expect, it } from 'vitest'
import { limits, protocolVersion } from '../../../src/peer/room/messages.ts'
import { proofText } from '../../../src/peer/room/secret.ts'
import type { Limits } from '../../../src/peer/server/limits.ts'
import { authKey, hmac, RendezvousWorld, roomA, roomB } from '../../support/rendezvous-world.ts'

/** The server's relay on a virtual clock, whose sockets take as much as a test lets them. */
function world(costs: Partial<Limits> = { relayFrameCostBytes: 0 }) {
  const own = new RendezvousWorld(
    { relayQueueBytes: 1000, relayFrameBytes: 400, relayFrameMinBytes: 0, ...costs },
    { hasRelay: true },
  )
  own.create('guest', roomA, null)
  const end = (id: string, side: 0 | 1, channel = 'c', room = roomA) =>
    own.relay(id, side, channel, room)
  return { own, end }
}

describe('the relay of a room', () => {
  it('passes bytes between the two ends of a channel, and nowhere else', () => {
    const { own, end } = world()
    own.create('other room', roomB, null)
    end('a', 0)
    end('x', 0, 'd')
    end('z', 1, 'c', roomB)
    expect(own.all('a', 'relayed')).toHaveLength(0)
    end('b', 1)
    expect(own.all('a', 'relayed')).toHaveLength(1)
    expect(own.all('b', 'relayed')).toHaveLength(1)
    own.server.receiveBytes('a', Uint8Array.of(1))
    own.server.receiveBytes('b', Uint8Array.of(2))
    expect(own.passed).toEqual([
      ['b', [1]],
      ['a', [2]],
    ])
    expect(own.server.status.relayedBytes).toBe(2)
    expect(own.all('x', 'relayed')).toHaveLength(0)
    expect(own.all('z', 'relayed')).toHaveLength(0)
  })

  it('takes no message that is shorter than a seal', () => {
    const { own, end } = world({ relayFrameMinBytes: limits.relayFrameMinBytes })
    end('a', 0)
    end('b', 1)
    own.server.receiveBytes('a', new Uint8Array(28))
    own.server.receiveBytes('a', new Uint8Array(27))
    expect(own.passed.map(([to, bytes]) => [to, bytes.length])).toEqual([['b', 28]])
    expect(own.last('a', 'error')).toMatchObject({
      code: 'bad-message',
      text: expect.stringContaining('sealed message of at least 28 bytes, got 27'),
    })
  })

  it('counts the cost of keeping a message besides its bytes', () => {
    const { own, end } = world({ relayFrameCostBytes: 249 })
    end('a', 0)
    end('b', 1)
    for (let at = 0; at < 4; at++) {
      expect(own.paused.has('a')).toBe(false)
      own.server.receiveBytes('a', Uint8Array.of(at))
    }
    expect(own.server.relayBytes).toBe(1000)
    expect(own.paused.has('a')).toBe(true)
    for (let at = 0; at < 4; at++) own.server.passed('b', 1)
    expect(own.server.relayBytes).toBe(0)
    expect(own.paused.has('a')).toBe(false)
  })

  it('stops reading an end when the limit waits for the other, and reads again below half of it', () => {
    const { own, end } = world()
    end('a', 0)
    end('b', 1)
    const message = new Uint8Array(300)
    for (let at = 0; at < 3; at++) own.server.receiveBytes('a', message)
    expect(own.paused.has('a')).toBe(false)
    own.server.receiveBytes('a', message)
    expect(own.paused).toEqual(new Set(['a']))
    expect(own.server.relayBytes).toBe(1200)
    // The other way is free.
    own.server.receiveBytes('b', message)
    expect(own.paused.has('b')).toBe(false)
    own.server.passed('b', 300)
    own.server.passed('b', 300)
    expect(own.paused.has('a')).toBe(true)
    own.server.passed('b', 300)
    expect(own.paused.has('a')).toBe(false)
  })

  it('stops reading all ends of an address above its rate, until the rate allows it', async () => {
    const { own, end } = world({
      ...{ relayFrameCostBytes: 0, relayQueueBytes: 1_000_000 },
      ...{ relayBytesPerSec: 100, relayBurstSec: 4 },
    })
    own.addressOf = (id) => (id === 'b' ? 'other' : 'near')
    end('a', 0)
    end('b', 1)
    end('c', 0, 'second')
    end('d', 1, 'second')
    own.server.receiveBytes('a', new Uint8Array(400))
    expect([...own.paused]).toEqual(['a'])
    // Another end of that address has nothing left either; another address has all.
    own.server.receiveBytes('c', new Uint8Array(99))
    own.server.receiveBytes('b', new Uint8Array(399))
    expect([...own.paused]).toEqual(['a', 'c'])
    await own.env.advance(900)
    expect([...own.paused]).toEqual(['a', 'c'])
    await own.env.advance(200)
    expect([...own.paused]).toEqual([])
    expect(own.passed).toHaveLength(3)
  })

  it('reads an end again when neither its rate nor a full queue stops it', async () => {
    const { own, end } = world({
      ...{ relayFrameCostBytes: 0, relayQueueBytes: 300 },
      ...{ relayBytesPerSec: 100, relayBurstSec: 1 },
    })
    end('a', 0)
    end('b', 1)
    own.server.receiveBytes('a', new Uint8Array(300))
    await own.env.advance(2_500)
    expect(own.paused.has('a')).toBe(true)
    own.server.passed('b', 300)
    expect(own.paused.has('a')).toBe(false)
    own.server.receiveBytes('a', new Uint8Array(300))
    own.server.passed('b', 300)
    expect(own.paused.has('a')).toBe(true)
    own.server.lost('a', 'closed')
    expect(own.closed.has('b')).toBe(true)
    own.server.lost('guest', 'closed')
    expect(own.env.timers).toBe(0)
  })

  it('does not drop an end that it does not read, but one that is silent', async () => {
    const { own, end } = world()
    end('a', 0)
    end('b', 1)
    own.deaf.add('a')
    for (let at = 0; at < 4; at++) own.server.receiveBytes('a', new Uint8Array(300))
    expect(own.paused.has('a')).toBe(true)
    await own.env.advance(3 * limits.goneMs)
    expect(own.closed.has('a')).toBe(false)
    own.server.passed('b', 1200)
    await own.env.advance(limits.goneMs + limits.pingMs)
    expect(own.closed.get('a')).toMatch(/heard nothing/)
    expect(own.last('b', 'error')).toMatchObject({
      code: 'other-end-gone',
      text: expect.stringMatching(/heard nothing/),
    })
    expect(own.closed.has('b')).toBe(true)
  })

  it('closes a paused sender with the reason when the other end dies', () => {
    const { own, end } = world()
    end('a', 0)
    end('b', 1)
    for (let at = 0; at < 4; at++) own.server.receiveBytes('a', new Uint8Array(300))
    own.server.lost('b', 'its tab closed')
    expect(own.paused.has('a')).toBe(false)
    expect(own.closed.get('a')).toMatch(/the other end is gone: its tab closed/)
    expect(own.server.relayBytes).toBe(0)
    // The name is free again.
    end('a2', 0)
    end('b2', 1)
    expect(own.all('a2', 'relayed')).toHaveLength(1)
  })

  it('waits a bounded time for the other end, and has a bounded number of ends', async () => {
    const { own, end } = world()
    end('a', 0)
    await own.env.advance(limits.relayWaitMs + 1)
    expect(own.refusal('a')).toBe('too-slow')
    for (let at = 0; at <= limits.relayEndsPerRoom; at++) end(`many ${at}`, 0, `channel ${at}`)
    expect(own.all('many 0', 'error')).toEqual([])
    expect(own.refusal(`many ${limits.relayEndsPerRoom}`)).toBe('too-many')
  })

  it('takes no signaling from an end, and no bytes from others', () => {
    const { own, end } = world()
    end('a', 0)
    own.say('a', { type: 'store', id: 1, call: { op: 'numKeys' } })
    expect(own.refusal('a')).toBe('wrong-state')
    own.server.receiveBytes('guest', Uint8Array.of(1))
    expect(own.refusal('guest')).toBe('bad-message')
    expect(own.closed.has('guest')).toBe(true)
  })

  it('is off by default', () => {
    const own = new RendezvousWorld()
    own.create('guest', roomA, null)
    expect(own.last('guest', 'welcome').relay).toBeUndefined()
    own.open('a')
    const proof = hmac(authKey, proofText(roomA, own.last('a', 'challenge').nonce))
    const asked = { room: roomA, proof, channel: 'c', side: 0 } as const
    own.say('a', { type: 'relay', version: protocolVersion, ...asked })
    expect(own.last('a', 'error')).toMatchObject({
      code: 'no-relay',
      text: expect.stringMatching(/Start it with --relay/),
    })
  })
})
