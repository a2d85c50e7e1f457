import { afterAll, beforeEach, describe, expect, test, vi } from 'vitest'
import { LanedConnection } from '../../../src/peer/tab/laned-connection.ts'
import type { WebRtcOptions } from '../../../src/peer/tab/webrtc.ts'
import { PeerError } from '../../../src/util/errors.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'

// The specs after this one in the same worker load their modules again.
afterAll(() => vi.resetModules())

// What the side that answers makes of a lane 0 whose other side says no more; tests/all/timing/lanes.spec.ts has real connections.

const { made } = vi.hoisted(() => {
  vi.resetModules() // specs before this one may have loaded what is mocked here
  return { made: [] as FakeConnection[] }
})

/** A connection that the test controls. */
interface FakeConnection {
  options: WebRtcOptions
  up(): void
  received: unknown[]
}

vi.mock('../../../src/peer/tab/webrtc.ts', () => ({
  WebRtcConnection: class {
    readonly connected: Promise<void>
    readonly received: unknown[] = []
    up!: () => void
    constructor(readonly options: WebRtcOptions) {
      this.connected = new Promise((resolve) => {
        this.up = resolve
      })
      made.push(this)
    }
    start = () => undefined
    close = () => undefined
    receive(_: number, signals: unknown) {
      this.received.push(signals)
    }
  },
}))

const lost = new PeerError('peer.lost', 'link to rank 0: ended: gone.')

function answering(env = new VirtualEnv()) {
  const downs: Error[] = []
  const connection = new LanedConnection({
    initiator: false,
    peerName: 'rank 0',
    onChannel: () => undefined,
    onSignal: () => undefined,
    onDown: (error) => downs.push(error),
    env,
  })
  connection.start()
  return { env, connection, downs, first: made[0]! }
}

beforeEach(() => {
  made.length = 0
})

describe('the answering side', () => {
  test('waits for the other lanes once it knows their number', async () => {
    const { env, connection, first } = answering()
    first.up()
    connection.receive(1, { lanes: 3 })
    await env.advance(10)
    expect(made).toHaveLength(3)
    connection.receive(1, { lane: 2, signals: ['offer'] })
    expect(made[2]!.received).toEqual([['offer']])
    let isUp = false
    connection.connected.then(() => {
      isUp = true
    })
    made[1]!.up()
    await env.advance(10)
    expect(isUp).toBe(false)
    made[2]!.up()
    await connection.connected
  })

  test('ends with the first connection when that ends before the number of lanes comes', async () => {
    const { connection, downs, first } = answering()
    first.up()
    first.options.onDown(lost)
    await expect(connection.connected).rejects.toThrow('ended: gone')
    expect(downs).toEqual([lost])
  })

  test('ends when it is closed before the number of lanes comes', async () => {
    const { connection, first } = answering()
    first.up()
    connection.close()
    await expect(connection.connected).rejects.toThrow('link to rank 0: closed on this side')
  })

  test('rejects when no number of lanes comes within 15 s', async () => {
    const { env, connection, first } = answering()
    first.up()
    const failed = connection.connected.catch((error) => error)
    await env.advance(15_100)
    expect(await failed).toMatchObject({
      code: 'peer.unreachable',
      message: expect.stringContaining('sent no number of lanes within 15000 ms'),
    })
    expect(env.timers).toBe(0)
  })
})
