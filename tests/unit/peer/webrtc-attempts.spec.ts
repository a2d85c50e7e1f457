import { afterAll, beforeEach, expect, test, vi } from 'vitest'
import { WebRtcConnection } from '../../../src/peer/tab/webrtc.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'

// When an attempt to connect is begun again; tests/gpu and tests/e2e have real connections.

// The specs after this one in the same worker load their modules again.
afterAll(() => {
  vi.resetModules()
  vi.unstubAllGlobals()
})

interface FakePeer {
  readonly _pc: { iceConnectionState: string }
  handlers: Map<string, () => void>
}

const { made } = vi.hoisted(() => {
  vi.resetModules() // specs before this one may have loaded what is mocked here
  return { made: [] as FakePeer[] }
})

vi.mock('simple-peer/simplepeer.min.js', () => ({
  default: class {
    static readonly WEBRTC_SUPPORT = true
    readonly _pc = {
      iceConnectionState: 'checking',
      createDataChannel: () => ({}),
      addEventListener: () => undefined,
      close: () => undefined,
    }
    readonly handlers = new Map<string, () => void>()
    readonly on = (event: string, handler: () => void) => this.handlers.set(event, handler)
    readonly signal = () => undefined
    readonly destroy = () => undefined
    constructor() {
      made.push(this)
    }
  },
}))

beforeEach(() => {
  made.length = 0
  vi.stubGlobal('window', {
    addEventListener: () => undefined,
    removeEventListener: () => undefined,
  })
})

function connecting() {
  const env = new VirtualEnv()
  const nothing = () => undefined
  const connection = new WebRtcConnection({
    ...{ initiator: true, peerName: 'rank 1', env, attemptTimeoutsMs: [1000, 800] },
    ...{ onChannel: nothing, onSignal: nothing, onDown: nothing },
  })
  connection.start()
  return { env, connection, first: made[0] }
}

test('a connection begins again when an attempt has found no way in its time', async () => {
  const { env, connection } = connecting()
  await env.advance(1001)
  expect(made).toHaveLength(2)
  await env.advance(800)
  await expect(connection.connected).rejects.toThrow('no connection')
})

test('a connection keeps its attempt for the time of all when that has found a way', async () => {
  const { env, connection, first } = connecting()
  first._pc.iceConnectionState = 'connected'
  await env.advance(1700)
  expect(made).toHaveLength(1)
  first.handlers.get('connect')!()
  await connection.connected
})

test('a connection ends in the time of all attempts when the way that it has found carries too little', async () => {
  const { env, connection, first } = connecting()
  first._pc.iceConnectionState = 'completed'
  await env.advance(1801)
  expect(made).toHaveLength(1)
  await expect(connection.connected).rejects.toMatchObject({ code: 'peer.unreachable' })
})
