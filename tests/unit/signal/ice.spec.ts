import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, it, test } from 'vitest'
import { type IceFlags, iceOptionsOf } from '../../../node/ice/ice-flags.ts'
import { type IceOptions, iceSource } from '../../../node/ice/ice-source.ts'
import { turnCredentials } from '../../../node/ice/turn-credentials.ts'
import { parseLaunch } from '../../../node/launch/options.ts'
import { tabring } from '../../../node/vite-plugin.ts'
import { type IceServer, iceLimits } from '../../../src/peer/room/ice-servers.ts'
import { limits } from '../../../src/peer/room/messages.ts'
import { newRoomUrl } from '../../../src/peer/room/room-url.ts'
import { newRoomLink } from '../../../src/peer/room/secret.ts'
import { SignalClient } from '../../../src/peer/tab/signal.ts'
import { infoOf } from '../../support/member-info.ts'
import { RendezvousWorld, roomA } from '../../support/rendezvous-world.ts'
import { socketFrom } from '../../support/signal-socket.ts'
import { StoreServer, type Tap, tappedSocket } from '../../support/store-server.ts'

/** STUN and TURN servers: how they are configured, and what tabs receive. tests/all/net has a TURN server that takes it. */

const secret = 'what-nobody-may-see'
const turn = 'turn:turn.example:3478?transport=udp'
const stun = 'stun:stun.example'

describe('credentials', () => {
  // printf '1700003600:ab12' | openssl dgst -sha1 -hmac north -binary | openssl base64
  // and Python's base64.b64encode(hmac.new('s p ü'.encode(), b'1:x', 'sha1').digest())
  test.each([
    ['north', 'ab12', 1_700_003_600_999, '1700003600:ab12', 'Ne69YWSTfAZNiwIJCkf5CNvHOys='],
    ['s p ü', 'x', 1_000, '1:x', 'JSYETFwYVgCSl9d1diBvwFi5gWE='],
  ])(
    'of %s for %s are those that openssl makes',
    (key, name, expiresAtMs, username, credential) => {
      expect(turnCredentials(key, name, expiresAtMs)).toEqual({ username, credential })
    },
  )

  it('are given to TURN servers without their own, for the lifetime, by name', () => {
    const own = { urls: [turn], username: 'me', credential: 'mine' }
    const options = {
      iceServers: [{ urls: stun }, own, { urls: [stun, turn] }],
      turnSecret: secret,
    }
    const [first, second, third] = iceSource('test', options)('a tab', 5_000)
    expect([first, second]).toEqual([{ urls: [stun] }, own])
    expect(third).toEqual({ urls: [stun, turn], ...turnCredentials(secret, 'a tab', 605_000) })
    const short = iceSource('test', { ...options, turnLifetimeMs: 60_000 })('a tab', 5_000)
    expect(short[2].username).toBe('65:a tab')
  })
})

describe('invalid settings are refused, without quoting a secret', () => {
  const many = (count: number) => Array.from({ length: count }, () => ({ urls: stun }))
  test.each<[string, unknown, RegExp]>([
    ['no list', { iceServers: 'x' }, /expected a list of 1 to 8 servers .* got 1 characters/],
    ['an empty list', { iceServers: [] }, /got 0/],
    ['too many', { iceServers: many(9) }, /got 9/],
    ['no object', { iceServers: [secret] }, /server 1: expected an object .* got 19 characters/],
    ['no urls', { iceServers: [{}] }, /server 1: expected a URL .* got none/],
    ['no URL', { iceServers: [{ urls: stun }, { urls: 'http://x' }] }, /server 2: .*"http:\/\/x"/],
    ['no host', { iceServers: [{ urls: 'stun:' }] }, /expected a URL like stun:host:3478/],
    ['a parameter', { iceServers: [{ urls: `${stun}?transport=udp` }] }, /expected a URL/],
    ['a password in it', { iceServers: [{ urls: `turn:me:${secret}@h` }] }, /got "turn:…@h"/],
    ['a misspelt name', { iceServers: [{ url: stun }] }, /expected only urls, .* got "url"/],
    [
      'half a login',
      { iceServers: [{ urls: turn, credential: secret }] },
      /username and credential must be given together/,
    ],
    ['an empty name', { iceServers: [{ urls: turn, username: '', credential: 'x' }] }, /username/],
    [
      'no secret',
      { iceServers: [{ urls: turn }] },
      /log in at turn:turn\.example.*TABRING_TURN_SEC/,
    ],
    [
      'an empty secret',
      { iceServers: [{ urls: turn }], turnSecret: '' },
      /the secret of the TURN server is empty/,
    ],
    [
      'a short life',
      { iceServers: many(1), turnLifetimeMs: 59_999 },
      /turnLifetimeMs must be from 60/,
    ],
    ['a long life', { iceServers: many(1), turnLifetimeMs: Number.NaN }, /got NaN/],
    ['another option', { iceServers: many(1), secret }, /got "secret"/],
  ])('%s', (_, options, expected) => {
    const make = () => iceSource('here', options as IceOptions)
    expect(make).toThrow(expected)
    expect(make).toThrow(expect.objectContaining({ code: 'config.invalid' }))
    expect(make).not.toThrow(secret)
  })
})

describe('flags', () => {
  let folder: string
  const file = (name: string) => join(folder, name)
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'tabring-ice-'))
    await writeFile(
      file('servers.json'),
      JSON.stringify([{ urls: turn, username: 'a', credential: secret }]),
    )
    await writeFile(file('broken.json'), `[{"urls": "${turn}", "credential": "${secret}"`)
    await writeFile(file('secret'), `${secret}\n`)
    await writeFile(file('two-lines'), `${secret}\nmore\n`)
    await writeFile(file('empty'), '\n')
  })
  afterAll(() => rm(folder, { recursive: true }))

  it('name servers by URL or file, the secret by file or environment', () => {
    const urls = { iceServers: `${stun},${turn}` }
    const iceServers = [{ urls: stun }, { urls: turn }]
    const environment = { TABRING_TURN_SECRET: 'of the environment' }
    expect(iceOptionsOf({}, environment)).toBeUndefined()
    expect(iceOptionsOf(urls, environment)).toEqual({
      iceServers,
      turnSecret: 'of the environment',
    })
    const all = { ...urls, turnSecretFile: file('secret'), turnLifetime: 90 }
    const turnLifetimeMs = 90_000
    expect(iceOptionsOf(all, environment)).toEqual({
      iceServers,
      turnSecret: secret,
      turnLifetimeMs,
    })
    expect(iceOptionsOf({ iceServers: file('servers.json') }, {})).toEqual({
      iceServers: [{ urls: turn, username: 'a', credential: secret }],
    })
  })

  test.each<[string, (at: typeof file) => IceFlags, RegExp]>([
    [
      'a URL that is none',
      () => ({ iceServers: 'turn:a b' }),
      /^--ice-servers: server 1: expected a URL/,
    ],
    [
      'JSON',
      () => ({ iceServers: `[{"credential": "${secret}"}]` }),
      /got JSON\. Write it to a file/,
    ],
    [
      'a missing file',
      (at) => ({ iceServers: at('none') }),
      /cannot read .*none\. Correct the path/,
    ],
    [
      'a broken file',
      (at) => ({ iceServers: at('broken.json') }),
      /broken\.json does not contain JSON/,
    ],
    ['no secret', () => ({ iceServers: turn }), /there is no way to log in at turn:/],
    [
      'no such secret',
      (at) => ({ iceServers: turn, turnSecretFile: at('none') }),
      /^--turn-secret-file/,
    ],
    ['two secrets', (at) => ({ iceServers: turn, turnSecretFile: at('two-lines') }), /got several/],
    ['an empty secret', (at) => ({ iceServers: turn, turnSecretFile: at('empty') }), /got none/],
  ])('%s is refused, without its contents', (_, flags, expected) => {
    const make = () => iceOptionsOf(flags(file), {})
    expect(make).toThrow(expected)
    expect(make).not.toThrow(secret)
  })

  it('are the launcher’s too', () => {
    const parse = (...argv: string[]) =>
      parseLaunch('run', [...argv, 'train.ts'], { TABRING_TURN_SECRET: secret })
    const parsed = parse('--ice_servers', `${stun},${turn}`, '--turn-lifetime=600')
    expect(parsed).toMatchObject({
      options: { ice: { iceServers: [{ urls: stun }, { urls: turn }], turnLifetimeMs: 600_000 } },
    })
    expect(parse()).toMatchObject({ options: { ice: undefined } })
    expect(() => parse('--turn-lifetime=10')).toThrow(
      /--turn-lifetime.*from 60 to 604800, got "10"/,
    )
  })
})

describe('ICE servers that members of a room receive', () => {
  const source = iceSource('test', { iceServers: [{ urls: turn }], turnSecret: secret })
  const expiryOf = (world: RendezvousWorld, id: string) =>
    Number(world.last(id, 'ice').iceServers[0].username!.split(':')[0])

  it('comes before the assignment, fresh for each run, and not before', async () => {
    const world = new RendezvousWorld({}, { ice: source })
    await world.fill(2)
    expect(world.all('t0', 'ice')).toEqual([])
    const epoch = await world.run(['t0', 't1'])
    const order = world.inboxes.get('t1')!.map(({ type }) => type)
    expect(order.indexOf('ice')).toBe(order.indexOf('assign') - 1)
    const [first, second] = ['t0', 't1'].map((id) => world.last(id, 'ice').iceServers[0])
    expect(first.username).not.toBe(second.username)
    const then = expiryOf(world, 't1')
    expect(then).toBe(Math.floor((world.env.now() - limits.lobbyDelayMs) / 1000) + 600)
    for (const id of ['t0', 't1']) world.say(id, { type: 'done', epoch })
    // A tab that comes two hours later, when the first credentials have long ended.
    await world.env.advance(2 * 3_600_000)
    world.join('late')
    await world.tick()
    await world.run(['t0', 't1', 'late'])
    for (const id of ['t0', 't1', 'late'])
      expect(expiryOf(world, id)).toBeGreaterThanOrEqual(then + 7200)
  })

  it('are an empty list when ports join the members, or the server has none', async () => {
    const ports = new RendezvousWorld({}, { ice: source })
    const hostTag = 'cd'.repeat(16)
    ports.create('t0', roomA, infoOf('t0', { hostTag }))
    ports.join('t1', roomA, infoOf('t1', { hostTag }))
    await ports.run(['t0', 't1'])
    const none = new RendezvousWorld()
    await none.run(await none.fill(2))
    for (const world of [ports, none]) expect(world.all('t1', 'ice')).toEqual([])
    none.say('t0', { type: 'ice' })
    expect(none.last('t0', 'ice').iceServers).toEqual([])
  })

  it('has no login at TURN servers for who is alone, as a member or as a guest', async () => {
    const own = { urls: turn, username: 'me', credential: secret }
    const ice = iceSource('test', {
      iceServers: [{ urls: stun }, { urls: turn }, own],
      turnSecret: secret,
    })
    for (const info of [infoOf('t0'), null]) {
      const world = new RendezvousWorld({}, { ice })
      world.create('t0', roomA, info)
      world.say('t0', { type: 'ice' })
      expect(world.last('t0', 'ice').iceServers).toEqual([{ urls: [stun] }])
      world.join('t1', roomA, null)
      for (const id of ['t0', 't1']) {
        world.say(id, { type: 'ice' })
        expect(world.last(id, 'ice').iceServers).toHaveLength(3)
      }
      world.say('t1', { type: 'bye' })
      world.say('t0', { type: 'ice' })
      expect(world.last('t0', 'ice').iceServers).toHaveLength(1)
    }
  })

  it('fits into a message, and needs a room', async () => {
    const url = `turn:${'h'.repeat(iceLimits.urlChars - 5)}`
    const urls = Array.from({ length: iceLimits.urlsPerServer }, () => url)
    const login = 'x'.repeat(iceLimits.credentialChars)
    const iceServers = Array.from({ length: iceLimits.servers }, () => ({
      urls,
      username: login,
      credential: login,
    }))
    const world = new RendezvousWorld({}, { ice: iceSource('test', { iceServers }) })
    await world.fill(2)
    world.say('t0', { type: 'ice' })
    const sizeBytes = JSON.stringify(world.last('t0', 'ice')).length
    expect(sizeBytes).toBeLessThan(limits.messageBytes)
    world.open('outside')
    world.say('outside', { type: 'ice' })
    expect(world.refusal('outside')).toBe('not-in-a-room')
  })
})

describe('over sockets', () => {
  let server: StoreServer | undefined
  afterEach(() => server?.close())

  it('a store hands out fresh credentials, made for it alone; the secret goes nowhere', async () => {
    const said: string[] = []
    const ice = { iceServers: [{ urls: stun }, { urls: turn }], turnSecret: secret }
    server = await StoreServer.start({ ice, log: (line) => said.push(line) })
    const url = newRoomUrl(server.address)
    const taps: Tap[] = [0, 1].map(() => ({ sent: [], received: [] }))
    const beforeSec = Math.floor(Date.now() / 1000)
    const stores = []
    for (const tap of taps) {
      stores.push(await server.open(url, { WebSocket: tappedSocket(server.origin, tap) }))
    }
    const received = await Promise.all([...stores, stores[0]].map((store) => store.iceServers()))
    for (const [first, second] of received) {
      expect(first).toEqual({ urls: [stun] })
      const [expiry, name] = second.username!.split(':')
      expect(Number(expiry)).toBeGreaterThanOrEqual(beforeSec + 600)
      expect(second).toEqual({
        urls: [turn],
        ...turnCredentials(secret, name, 1000 * Number(expiry)),
      })
    }
    expect(received[0][1].username!.split(':')[1]).not.toBe(received[1][1].username!.split(':')[1])
    expect(taps.flatMap(({ received }) => received).join()).not.toContain(secret)
    expect(said.join()).not.toContain(secret)
  })

  it('reach a member of a room with its links', async () => {
    server = await StoreServer.start({ ice: { iceServers: [{ urls: turn }], turnSecret: secret } })
    const link = newRoomLink()
    const options = { url: `${server.address}/signal`, link, WebSocket: socketFrom(server.origin) }
    const [first, second] = ['a', 'b'].map(
      (name) => new SignalClient({ ...options, info: infoOf(name) }),
    )
    const had = [first, second].map(
      (client) =>
        new Promise<readonly IceServer[]>((resolve) => {
          client.on('assign', () => resolve(client.iceServers))
        }),
    )
    const full = new Promise<void>((resolve) => {
      first.on('lobby', ({ members }) => members.length === 2 && resolve())
    })
    await first.open()
    await second.open()
    await full
    expect(first.iceServers).toEqual([])
    first.start(null)
    const [own, other] = await Promise.all(had)
    for (const [{ urls, username, credential }] of [own, other]) {
      const [expiry, name] = username!.split(':')
      expect(urls).toEqual([turn])
      expect({ username, credential }).toEqual(turnCredentials(secret, name, 1000 * Number(expiry)))
    }
    expect(own[0].username).not.toBe(other[0].username)
    first.bye()
    second.bye()
  })

  it('a store whose server ends meanwhile, or that is closed, rejects', async () => {
    server = await StoreServer.start()
    const tap: Tap = {
      sent: [],
      received: [],
      tamper: (text) => (/"ice"/.test(text) ? undefined : text),
    }
    const store = await server.open(newRoomUrl(server.address), {
      WebSocket: tappedSocket(server.origin, tap),
    })
    const asked = store.iceServers()
    asked.catch(() => undefined)
    await server.signaling.close()
    await expect(asked).rejects.toThrow(/the signaling server was stopped/)
    await expect(store.iceServers()).rejects.toMatchObject({ code: 'signal.lost' })
  })

  it('Vite’s plugin takes them, and refuses invalid ones at once', () => {
    expect(() =>
      tabring({ ice: { iceServers: [{ urls: turn }], turnSecret: secret } }),
    ).not.toThrow()
    expect(() => tabring({ ice: { iceServers: [{ urls: turn }] } })).toThrow(
      /^tabring: ice: there is no way to log in at turn:/,
    )
  })

  it('an invalid configuration ends the server before it begins', async () => {
    await expect(StoreServer.start({ ice: { iceServers: [{ urls: turn }] } })).rejects.toThrow(
      /^signaling: there is no way to log in at turn:/,
    )
  })
})
