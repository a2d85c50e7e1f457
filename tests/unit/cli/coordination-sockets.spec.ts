import { mkdtemp, rm } from 'node:fs/promises'
import type { Server } from 'node:http'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect } from 'node:tls'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { WebSocket, WebSocketServer } from 'ws'
import { ownCertificate } from '../../../node/certificate.ts'
import type { Task } from '../../../node/launch/coordination/follower.ts'
import {
  type JoinOptions,
  joinCoordination,
  type LeaderPlace,
} from '../../../node/launch/coordination/join.ts'
import { RunKeys } from '../../../node/launch/coordination/keys.ts'
import { Leader } from '../../../node/launch/coordination/leader.ts'
import { launchersPath } from '../../../node/launch/coordination/messages.ts'
import { openDoor } from '../../../node/launch/coordination/server.ts'
import { type Pin, pinOf } from '../../../node/launch/pin.ts'
import { Restarts } from '../../../node/restarts.ts'
import { type Env, systemEnv } from '../../../src/util/env.ts'

/** Launchers that find each other over TLS on this machine: keys, certificates, and who stands between. */

const key = 'a key of the run'.replaceAll(' ', '-')
let folders: string[]
let own: { cert: string; key: string; pin: Pin }
let foreign: { cert: string; key: string; pin: Pin }
const toClose: (() => unknown)[] = []

beforeAll(async () => {
  folders = await Promise.all([0, 1].map(() => mkdtemp(join(tmpdir(), 'tabring-'))))
  const [a, b] = await Promise.all(folders.map((folder) => ownCertificate({ folders: [folder] })))
  own = { ...a, pin: pinOf(a.cert) }
  foreign = { ...b, pin: pinOf(b.cert) }
})
afterEach(async () => {
  for (const close of toClose.splice(0).reverse()) await close()
})
afterAll(() => Promise.all(folders.map((folder) => rm(folder, { recursive: true }))))

async function listening(server: Server, port = 0): Promise<number> {
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve))
  toClose.push(() => {
    server.closeAllConnections()
    server.close()
  })
  return (server.address() as AddressInfo).port
}

/** Its timers end with the test: a leader waits a minute for launchers that never come. */
const env: Env = {
  ...systemEnv,
  after(delayMs, callback) {
    const cancel = systemEnv.after(delayMs, callback)
    toClose.push(cancel)
    return cancel
  },
}

/** A leader of two launchers with its door; its own launcher is in. */
async function startLeader(port = 0) {
  const leader = new Leader({
    env,
    launchers: 2,
    restarts: new Restarts(0),
    isKilling: true,
    maxRanks: 64,
    joinTimeoutMs: 60_000,
    log: () => undefined,
  })
  const first = { index: 0, name: 'first', tabs: 1, place: null }
  const answer = leader.join(first, 2, () => undefined)
  if ('refusal' in answer) throw new Error(answer.refusal)
  const server = createServer({ cert: own.cert, key: own.key })
  const door = openDoor(server, { leader, keys: new RunKeys(key, 'run'), pin: own.pin })
  toClose.push(() => door.close())
  return { leader, handle: answer.handle, server, door, port: await listening(server, port) }
}

const placeAt = (port: number, change: Partial<LeaderPlace> = {}): LeaderPlace => ({
  host: '127.0.0.1',
  port,
  keys: new RunKeys(key, 'run'),
  ...change,
})

function joining(
  port: number,
  { keys, pin, ...change }: Partial<JoinOptions & Pick<LeaderPlace, 'keys' | 'pin'>> = {},
) {
  return joinCoordination({
    place: async () => placeAt(port, { ...(keys && { keys }), ...(pin && { pin }) }),
    member: { index: 1, name: 'second', tabs: 2, place: null },
    launchers: 2,
    joinTimeoutMs: 5_000,
    signal: new AbortController().signal,
    onWaiting: () => undefined,
    ...change,
  })
}

function partOf(task: Task) {
  if (task.type !== 'run') throw new Error(`expected to run, got ${task.type}`)
  return task
}

test('with the key alone: the certificate is proven, orders come, and the follower learns the end', async () => {
  const { port, handle } = await startLeader()
  const { follower, pin, close } = await joining(port)
  expect(pin).toBe(own.pin)
  const { part, stop } = partOf(await follower.next())
  expect(part).toMatchObject({ firstRank: 1, worldSize: 3, nodeRank: 1, localWorldSize: 2 })
  const failure = { rank: 2, host: 'second', code: '', text: 'boom' }
  follower.failed(part, failure)
  await new Promise((resolve) => stop.addEventListener('abort', resolve))
  follower.ended(part)
  handle.receive({ type: 'ended', attempt: 0 })
  expect(await follower.next()).toEqual({ type: 'leave', failure })
  await close()
})

test('a launcher leaves with a reason of any length', async () => {
  const { port } = await startLeader()
  const { close } = await joining(port)
  // More bytes than a closing frame has room for, at which ws throws.
  await close('ä'.repeat(100))
})

test('the pinned certificate is accepted, another is not, before anything is said', async () => {
  const { port } = await startLeader()
  await expect(joining(port, { pin: foreign.pin })).rejects.toThrow(
    `expected the certificate with the fingerprint ${foreign.pin}, got ${own.pin}`,
  )
  const { close } = await joining(port, { pin: own.pin })
  await close()
})

test('another key and another run are refused', async () => {
  const { port } = await startLeader()
  const other = new RunKeys('another-key-of-16-chars', 'run')
  await expect(joining(port, { keys: other })).rejects.toThrow('the key does not match')
  const run = new RunKeys(key, 'other-run')
  await expect(joining(port, { keys: run })).rejects.toThrow('the run or its key does not match')
})

test('a place from an earlier run is read again until the leader is there', async () => {
  const before = await startLeader()
  const now = await startLeader()
  const other = new RunKeys('another-key-of-16-chars', 'run')
  const gone = placeAt(before.port, { keys: other })
  const closed = placeAt(1)
  const places = [closed, gone, placeAt(before.port, { pin: foreign.pin }), placeAt(now.port)]
  const received: string[] = []
  const joined = await joining(0, {
    place: async () => places.shift()!,
    mayBeOld: true,
    onWaiting: (where) => received.push(where),
  })
  expect(places).toEqual([])
  expect(joined.place.port).toBe(now.port)
  expect(received).toHaveLength(1)
  expect(received[0]).toContain('127.0.0.1:1 (')
  await joined.close()
  // What the right leader says counts at once.
  await expect(joining(before.port, { mayBeOld: true, launchers: 3 })).rejects.toThrow(
    'expected a launcher of 2, got one of 3',
  )
})

test('another number of machines is refused', async () => {
  const { port } = await startLeader()
  await expect(joining(port, { launchers: 3 })).rejects.toThrow(
    'expected a launcher of 2, got one of 3',
  )
})

test('a man in the middle with another certificate gets no proof', async () => {
  const { port } = await startLeader()
  const between = createServer({ cert: foreign.cert, key: foreign.key })
  let passed = ''
  between.on('upgrade', (request, socket, head) => {
    const far = connect({ host: '127.0.0.1', port, rejectUnauthorized: false }, () => {
      const headers = request.rawHeaders.reduce(
        (text, word, i) => text + (i % 2 === 0 ? `${word}: ` : `${word}\r\n`),
        '',
      )
      far.write(`GET ${request.url} HTTP/1.1\r\n${headers}\r\n`)
      far.write(head)
      far.pipe(socket)
      far.on('data', (bytes) => {
        passed += bytes
      })
      socket.pipe(far)
    })
    far.on('error', () => socket.destroy())
    socket.on('error', () => far.destroy())
  })
  await expect(joining(await listening(between))).rejects.toThrow('the key does not match')
  // He did pass it on: it was the certificate that gave him away.
  expect(passed).toContain('"type":"challenge"')
  expect(passed).not.toContain('"type":"welcome"')
})

test('a leader without the key is refused', async () => {
  const server = createServer({ cert: foreign.cert, key: foreign.key })
  const wss = new WebSocketServer({ server, path: launchersPath })
  wss.on('connection', (socket) => {
    socket.send(JSON.stringify({ type: 'challenge', version: 1, nonce: '0'.repeat(64) }))
    socket.on('message', () => {
      socket.send(JSON.stringify({ type: 'welcome', proof: '0'.repeat(64) }))
    })
  })
  await expect(joining(await listening(server))).rejects.toThrow("does not hold the run's key")
})

test('pages of browsers are not let in', async () => {
  const { port } = await startLeader()
  const socket = new WebSocket(`wss://127.0.0.1:${port}${launchersPath}`, {
    origin: 'https://page.example',
    rejectUnauthorized: false,
  })
  const error = await new Promise<Error>((resolve) => socket.once('error', resolve))
  expect(error.message).toContain('socket hang up')
})

test('who comes first waits for the leader', async () => {
  const { port, door, server } = await startLeader()
  await door.close()
  server.closeAllConnections()
  await new Promise((resolve) => server.close(resolve))
  const reasons: string[] = []
  let hasWaited: () => void = () => undefined
  const waited = new Promise<void>((resolve) => {
    hasWaited = resolve
  })
  const joined = joining(port, {
    onWaiting: (reason) => {
      reasons.push(reason)
      hasWaited()
    },
  })
  await waited
  await startLeader(port)
  const { follower, close } = await joined
  expect(partOf(await follower.next()).part.firstRank).toBe(1)
  expect(reasons).toEqual([expect.stringContaining('ECONNREFUSED')])
  await close()
})

test('nobody there: the error names address and time', async () => {
  const { port, door, server } = await startLeader()
  await door.close()
  await new Promise((resolve) => server.close(resolve))
  await expect(joining(port, { joinTimeoutMs: 300 })).rejects.toThrow(
    `could not join the launcher of rank 0 at 127.0.0.1:${port} within 0.3 s: `,
  )
})

test('the leader that goes ends the waiting of the others', async () => {
  const { port, door } = await startLeader()
  const { follower } = await joining(port)
  const { stop } = partOf(await follower.next())
  await door.close()
  await expect(follower.next()).rejects.toThrow('ended before the run did')
  expect(stop.aborted).toBe(true)
})

test('rooms differ by key, by run and by start; all launchers of a run have the same', () => {
  const keys = [
    new RunKeys(key, 'run').room(0),
    new RunKeys(key, 'run').room(1),
    new RunKeys(key, 'other').room(0),
    new RunKeys('another-key-of-16-chars', 'run').room(0),
  ]
  expect(new Set(keys.map(({ room }) => room)).size).toBe(4)
  expect(new Set(keys.map(({ key: secret }) => secret)).size).toBe(4)
  for (const { room, key: secret } of keys) {
    expect(room).toMatch(/^[0-9a-f]{32}$/)
    expect(secret).toMatch(/^[\w-]{43}$/)
  }
  expect(new RunKeys(key, 'run').room(0)).toEqual(keys[0])
})
