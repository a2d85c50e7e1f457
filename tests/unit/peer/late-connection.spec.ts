import { afterAll, beforeEach, describe, expect, test, vi } from 'vitest'
import type { LanedConnectionOptions } from '../../../src/peer/tab/laned-connection.ts'
import { LateConnection } from '../../../src/peer/tab/late-connection.ts'

// The specs after this one in the same worker load their modules again.
afterAll(() => vi.resetModules())

// What happens before and while WebRTC's code is loaded; tests/all/e2e/connect.spec.ts has real connections.

const { received } = vi.hoisted(() => {
  vi.resetModules() // specs before this one may have loaded what is mocked here
  return { received: [] as string[] }
})

vi.mock('../../../src/peer/tab/laned-connection.ts', () => ({
  LanedConnection: class {
    readonly connected = Promise.resolve()
    start = () => received.push('start')
    close = () => received.push('close')
    receive = (attempt: number, signals: unknown) => received.push(`${attempt} ${signals}`)
    stats = async () => ({ lanes: 1 })
  },
}))

const made = () => new LateConnection({ peerName: 'rank 1' } as LanedConnectionOptions)

beforeEach(() => {
  received.length = 0
})

describe('a late connection', () => {
  test('passes on signals in order after the start when they came before its code', async () => {
    const connection = made()
    connection.start()
    connection.receive(1, 'offer')
    connection.receive(1, 'candidate')
    expect(await connection.stats()).toBeNull()
    await connection.connected
    connection.receive(2, 'again')
    expect(received).toEqual(['start', '1 offer', '1 candidate', '2 again'])
    expect(await connection.stats()).toEqual({ lanes: 1 })
  })

  test('never starts when it is closed before its code has loaded', async () => {
    const connection = made()
    connection.start()
    connection.close()
    await connection.connected
    expect(received).toEqual(['close'])
  })
})
