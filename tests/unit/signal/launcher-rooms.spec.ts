import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { WebSocket } from 'ws'
import { newKey, RunKeys } from '../../../node/launch/coordination/keys.ts'
import type { Leader } from '../../../node/launch/coordination/leader.ts'
import { type Master, openMaster } from '../../../node/launch/master.ts'
import { servePages } from '../../../node/launch/serve-pages.ts'
import type { Served } from '../../../node/serve.ts'
import { protocolVersion, signalPath } from '../../../src/peer/room/messages.ts'
import { newRoomLink, type RoomLink, RoomSecret } from '../../../src/peer/room/secret.ts'

// A launcher's signaling server takes the rooms of its own run alone: on the public port of several machines' runs, and with its pages where it is alone.

const keys = new RunKeys(newKey(), 'run')
const ice = { iceServers: [{ urls: 'turn:turn.example:3478' }], turnSecret: 'run-secret' }
let home: string
let master: Master
let alone: Served
beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), 'tabring-'))
  vi.stubEnv('HOME', home)
  master = await openMaster({
    host: 'alpha',
    port: 0,
    lastPort: 0,
    keys,
    maxRooms: 2,
    // No launcher comes here.
    leader: {} as Leader,
    relay: true,
    ice,
  })
  const plan = { masterPort: 0, isPortFixed: true }
  const own = { ice, relay: true, maxRooms: 2 }
  alone = await servePages(plan, { signaling: null, keys }, { root: home }, own)
})
afterAll(async () => {
  await Promise.all([master.close(), alone.close()])
  vi.unstubAllEnvs()
  await rm(home, { recursive: true, force: true })
})

/** Creates `link`'s room; returns the server's messages, up to ICE servers or the connection's end. */
async function create(server: string, link: RoomLink, authKey?: string): Promise<string[]> {
  const secret = await RoomSecret.derive({ key: link.key })
  const { room = secret.room } = link
  const own = authKey ?? secret.authKey
  const origin = server
  const socket = new WebSocket(`${server.replace('http', 'ws')}${signalPath}`, {
    rejectUnauthorized: false,
    headers: { Origin: origin },
  })
  const received: string[] = []
  await new Promise<void>((resolve, reject) => {
    socket.on('error', reject)
    socket.on('close', () => resolve())
    socket.on('message', (data) => {
      const message = JSON.parse(String(data))
      received.push(message.type === 'error' ? message.code : message.type)
      if (message.type === 'challenge') {
        const made = { type: 'create', version: protocolVersion, room, authKey: own }
        socket.send(JSON.stringify({ ...made, info: null }))
        socket.send(JSON.stringify({ type: 'ice' }))
      }
      if (message.type === 'ice') socket.close()
    })
  })
  return received
}

const servers = {
  'the public port': () => `https://127.0.0.1:${master.port}`,
  'the port of a launcher that is alone': () => `http://127.0.0.1:${alone.port}`,
}

describe.each(Object.entries(servers))('at %s', (_, server) => {
  test("a stranger's room is refused, without ICE servers", async () => {
    expect(await create(server(), newRoomLink())).toEqual(['challenge', 'bad-proof'])
    // The id alone, which servers see, is no key.
    expect(await create(server(), keys.room(0), 'b'.repeat(64))).toEqual(['challenge', 'bad-proof'])
    const other = new RunKeys(newKey(), 'run').room(0)
    expect(await create(server(), other)).toEqual(['challenge', 'bad-proof'])
    expect(await create(server(), keys.room(2))).toEqual(['challenge', 'bad-proof'])
  })

  test('the run itself gets in, at its first start and after a restart', async () => {
    for (const attempt of [0, 1]) {
      const received = await create(server(), keys.room(attempt))
      expect(received[0]).toBe('challenge')
      expect(received.at(-1)).toBe('ice')
      expect(received).not.toContain('bad-proof')
    }
  })
})
