import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { limits } from '../../../src/peer/room/messages.ts'
import { SignalError } from '../../../src/peer/room/refusals.ts'
import { newRoomUrl, parseRoomUrl } from '../../../src/peer/room/room-url.ts'
import { HashStore } from '../../../src/peer/store/hash-store.ts'
import { PrefixStore } from '../../../src/peer/store/prefix-store.ts'
import type { Store } from '../../../src/peer/store/store.ts'
import { SignalClient } from '../../../src/peer/tab/signal.ts'
import { seededRandom } from '../../../src/util/virtual-env.ts'
import { infoOf } from '../../support/member-info.ts'
import { socketFrom } from '../../support/signal-socket.ts'
import { StoreServer, type Tap, tappedSocket } from '../../support/store-server.ts'

/** Stores over real sockets: several connections to one server on a port of this machine. */

const text = (value: Uint8Array) => new TextDecoder().decode(value)
const count = (length: number) => Array.from({ length }, (_, i) => i)

let server: StoreServer
const rooms = () => server.signaling.rendezvous.counts
beforeAll(async () => {
  server = await StoreServer.start()
})
afterEach(async () => {
  server.closeStores()
  await expect.poll(rooms).toEqual({ rooms: 0, connections: 0 })
  expect(server.signaling.rendezvous.storeBytes).toBe(0)
})
afterAll(() => server.close())

const newUrl = () => newRoomUrl(server.address)

describe('several connections', () => {
  it('100 adds at once from 5 of them give 100 values', async () => {
    const url = newUrl()
    const stores = await Promise.all(count(5).map(() => server.open(url)))
    const sums = await Promise.all(count(100).map((i) => stores[i % 5].add('n', 1)))
    expect(new Set(sums).size).toBe(100)
    expect(Math.max(...sums)).toBe(100)
    expect(text(await stores[0].get('n'))).toBe('100')
  })

  it('8 that open an empty room at once are all inside of one', async () => {
    const url = newUrl()
    const stores = await Promise.all(count(8).map(() => server.open(url)))
    expect(rooms()).toEqual({ rooms: 1, connections: 8 })
    await stores[0].set('a', 'seen by all')
    for (const store of stores) expect(text(await store.get('a'))).toBe('seen by all')
  })

  it('a pending get resolves when another client sets the key', async () => {
    const url = newUrl()
    const [a, b] = [await server.open(url), await server.open(url)]
    const got = Promise.all([a.get('x'), b.get('x'), a.wait(['x', 'y'])])
    await b.set('x', 'here')
    await b.add('y', 1)
    const [mine, theirs] = await got
    expect([text(mine), text(theirs)]).toEqual(['here', 'here'])
  })

  it('40 rounds of compareSet by four clients count to 40, although they compete', async () => {
    const url = newUrl()
    const stores = await Promise.all(count(4).map(() => server.open(url)))
    await stores[0].set('n', '0')
    let lost = 0
    const countUp = async (store: Store, name: number) => {
      for (let done = 0; done < 10; ) {
        const before = text(await store.get('n'))
        const after = `${Number.parseInt(before, 10) + 1} of ${name}`
        if (text(await store.compareSet('n', before, after)) === after) done++
        else lost++
      }
    }
    await Promise.all(stores.map(countUp))
    expect(text(await stores[0].get('n'))).toMatch(/^40 of /)
    expect(lost).toBeGreaterThan(0)
  })

  it('40 adds give 40 values, although others reseal the counter all the time', async () => {
    const url = newUrl()
    const stores = await Promise.all(count(4).map(() => server.open(url)))
    await stores[0].set('n', '0')
    let isOver = false
    const sealAgain = async (store: Store) => {
      while (!isOver) {
        const now = await store.get('n')
        await store.compareSet('n', now, now)
      }
    }
    const addUp = async (store: Store) => {
      const sums: number[] = []
      for (const _ of count(20)) sums.push(await store.add('n', 1))
      return sums
    }
    const sealing = stores.slice(0, 2).map(sealAgain)
    const sums = (await Promise.all(stores.slice(2).map(addUp))).flat()
    isOver = true
    await Promise.all(sealing)
    expect(sums.sort((a, b) => a - b)).toEqual(count(40).map((i) => i + 1))
  })

  it('200 random calls have the results of a HashStore, for sealed and counted values', async () => {
    const url = newUrl()
    const theirs = [await server.open(url), await server.open(url)]
    const ours = new HashStore()
    const draw = seededRandom(20261122)
    const one = <T>(list: readonly T[]) => list[Math.floor(draw() * list.length)]
    const values = ['', '5', '6', '7', 'abc', ' 6x']
    for (const i of count(200)) {
      const [key, a, b] = [one(['k', 'l']), one(values), one(values)]
      const op = one(['set', 'add', 'add', 'compareSet', 'compareSet', 'compareSet', 'deleteKey'])
      const call = async (store: Store): Promise<unknown> => {
        if (op === 'set') return store.set(key, a)
        if (op === 'add') return store.add(key, a.length - 1).catch((error) => error.code)
        if (op === 'compareSet') return text(await store.compareSet(key, a, b))
        return [await store.deleteKey(key), await store.numKeys()]
      }
      expect(await call(theirs[i % 2]), `${i}: ${op} ${key} ${a} ${b}`).toEqual(await call(ours))
    }
  })

  it('prefixes do not clash', async () => {
    const url = newUrl()
    const [a, b] = [await server.open(url), await server.open(url)]
    const [one, two] = [new PrefixStore('one', a), new PrefixStore('two', b)]
    await one.set('k', '1')
    await two.set('k', '2')
    expect(text(await one.get('k'))).toBe('1')
    expect(text(await b.get('one/k'))).toBe('1')
    expect(await one.numKeys()).toBe(2)
  })
})

describe('time', () => {
  it('a wait that is over names the keys', async () => {
    const store = await server.open(newUrl(), { timeoutMs: 40 })
    await store.set('b', '')
    await expect(store.wait(['a', 'b', 'c'])).rejects.toThrow(/40 ms without "a", "c"\./)
    await expect(store.get('z')).rejects.toMatchObject({ code: 'peer.timeout' })
    await expect(store.wait(['y'], 20)).rejects.toThrow(/20 ms without "y"/)
    const many = count(50).map((i) => `k${i}`)
    await expect(store.wait(many, 1)).rejects.toThrow(/"k15" and 34 more/)
    await store.set('a', 'still open')
  })

  it('calls take effect in the order in which they are made, although values are sealed first', async () => {
    const store = await server.open(newUrl())
    const big = new Uint8Array(limits.storeValueBytes)
    void store.set('a', big)
    void store.set('a', '1')
    const swapped = store.compareSet('a', '1', '2')
    const got = store.get('a')
    void store.add('n', 1)
    const gone = [store.deleteKey('a'), store.deleteKey('n')]
    expect([text(await swapped), text(await got)]).toEqual(['2', '2'])
    expect(await Promise.all(gone)).toEqual([true, true])
  })

  it('more calls at once than the server takes wait their turn, and none is cut off', async () => {
    const store = await server.open(newUrl())
    const sums = await Promise.all(count(limits.storeCallBurst + 100).map(() => store.add('n', 1)))
    expect(sums.at(-1)).toBe(limits.storeCallBurst + 100)
  }, 20_000)
})

describe('the room', () => {
  it('holds the store as long as anyone is inside, and no longer', async () => {
    const url = newUrl()
    const [a, b] = [await server.open(url), await server.open(url)]
    await a.set('k', 'v')
    a.close()
    await expect.poll(() => rooms().connections).toBe(1)
    expect(text(await b.get('k'))).toBe('v')
    b.close()
    await expect.poll(rooms).toEqual({ rooms: 0, connections: 0 })
    const again = await server.open(url)
    expect(await again.numKeys()).toBe(0)
  })

  it('a member of the lobby holds it too, and sees no guests', async () => {
    const url = newUrl()
    const { server: address, link } = parseRoomUrl('test', url)
    const store = await server.open(url)
    const WebSocket = socketFrom(server.origin)
    const member = new SignalClient({ url: address, link, info: infoOf('tab'), WebSocket })
    const received = new Promise<string[]>((resolve) => {
      member.on('lobby', (lobby) => resolve(lobby.members.map((one) => one.name)))
    })
    await member.open()
    expect(await received).toEqual(['tab'])
    expect(member.isMaker).toBe(true)
    await store.set('k', 'v')
    store.close()
    await expect.poll(() => rooms().connections).toBe(1)
    const again = await server.open(url, { mode: 'join' })
    expect(text(await again.get('k'))).toBe('v')
    member.bye()
  })

  it('one that is not there, a changed link, a foreign page: refused with the reason', async () => {
    const url = newUrl()
    const refusal = (code: string) => ({ code: 'signal.refused', refusal: code })
    await expect(server.open(url, { mode: 'join' })).rejects.toMatchObject(refusal('unknown-room'))
    const store = await server.open(url, { mode: 'create' })
    await expect(server.open(url, { mode: 'create' })).rejects.toBeInstanceOf(SignalError)
    const wrong = url.replace('#', `#room=${'a'.repeat(32)}&`)
    await expect(server.open(wrong)).rejects.toMatchObject({ code: 'config.invalid' })
    const WebSocket = socketFrom('https://evil.example')
    await expect(server.open(url, { WebSocket })).rejects.toMatchObject(refusal('foreign-origin'))
    await expect(server.open('ws://127.0.0.1:9/#'.concat(url.split('#')[1]))).rejects.toMatchObject(
      { code: 'signal.lost' },
    )
    await store.set('k', 'v')
  })
})

describe('limits', () => {
  it('a value, a key or a wait that is too large is refused, and the store stays usable', async () => {
    const store = await server.open(newUrl())
    const refusal = { code: 'signal.refused', refusal: 'too-large' }
    const value = new Uint8Array(limits.storeValueBytes + 1)
    await expect(store.set('a', value)).rejects.toMatchObject(refusal)
    await expect(store.compareSet('a', '', value)).rejects.toThrow(/at most 16384 bytes, got 16385/)
    await expect(store.set('é'.repeat(300), '')).rejects.toThrow(
      /key of at most 512 bytes, got 600/,
    )
    await expect(store.get('x'.repeat(200_000))).rejects.toMatchObject(refusal)
    const keys = count(200).map((i) => `${i}`.padEnd(400))
    await expect(store.wait(keys)).rejects.toThrow(/too-large.*call of at most 65536 bytes/)
    await store.set('x'.repeat(512), new Uint8Array(limits.storeValueBytes))
    expect(await store.get('x'.repeat(512))).toHaveLength(limits.storeValueBytes)
  })

  it('a value is refused with the limit when a server allows less', async () => {
    const small = await StoreServer.start({
      limits: { storeKeysPerRoom: 2, storeValueBytes: 100, storeBytesPerRoom: 1000, storeWaits: 2 },
    })
    const store = await small.open(newRoomUrl(small.address), { timeoutMs: 0 })
    const pending = [store.get('p'), store.get('q')].map((one) => one.catch((error) => error.code))
    await expect(store.get('r')).rejects.toThrow(/too-many.*at most 2 waits pending/)
    await expect(store.set('a', 'x'.repeat(101))).rejects.toThrow(/too-large.*at most 100 bytes/)
    await store.set('a', 'x'.repeat(100))
    await store.add('b', 1)
    await expect(store.add('c', 1)).rejects.toThrow(/store-full.*at most 2 keys/)
    await store.deleteKey('b')
    await store.set('b'.repeat(300), 'x'.repeat(60))
    await expect(store.set('a', 'x'.repeat(100))).resolves.toBeUndefined()
    await store.deleteKey('a')
    await expect(store.set('c'.repeat(400), '')).rejects.toMatchObject({ refusal: 'store-full' })
    await small.close()
    expect(await Promise.all(pending)).toEqual(['peer.lost', 'peer.lost'])
  })
})

describe('what the server sees', () => {
  it('keys and counters, but no value: not as text, nor in any of its usual forms', async () => {
    const tap: Tap = { sent: [], received: [] }
    const url = newUrl()
    const store = await server.open(url, { WebSocket: tappedSocket(server.origin, tap) })
    const secret = 'the password is hunter2, 31337'
    await store.set('the key', secret)
    expect(text(await store.get('the key'))).toBe(secret)
    expect(text(await store.compareSet('the key', secret, '424242'))).toBe('424242')
    expect(text(await store.compareSet('other key', '', secret))).toBe(secret)
    expect(await store.add('the counter', 271828)).toBe(271828)
    const all = [...tap.sent, ...tap.received].join('\n')
    expect(tap.received.length).toBeGreaterThan(5)
    for (const visible of ['the key', 'the counter', '271828']) expect(all).toContain(visible)
    for (const value of [secret, 'hunter2', '424242']) {
      for (const form of ['utf8', 'hex', 'base64', 'base64url'] as const) {
        expect(all).not.toContain(Buffer.from(value).toString(form).replaceAll('=', ''))
      }
    }
    expect(all).not.toContain(url.split('key=')[1])
  })

  it('an equal value under the same key has another box and the same tag; under another key the tag differs too', async () => {
    const tap: Tap = { sent: [], received: [] }
    const store = await server.open(newUrl(), { WebSocket: tappedSocket(server.origin, tap) })
    for (const key of ['a', 'a', 'b']) await store.set(key, 'same')
    const values = tap.sent.flatMap((one) => JSON.parse(one).call?.value ?? [])
    expect(new Set(values.map((one) => one.box)).size).toBe(3)
    expect(values[0].tag).toBe(values[1].tag)
    expect(values[0].tag).not.toBe(values[2].tag)
  })

  it('a value that the server moves, changes or invents is refused, and an invented answer too', async () => {
    const tap: Tap = { sent: [], received: [] }
    const store = await server.open(newUrl(), { WebSocket: tappedSocket(server.origin, tap) })
    await store.set('a', 'of a')
    await store.set('b', 'of b')
    const [a, b] = tap.sent.flatMap((one) => JSON.parse(one).call?.value ?? [])
    const get = () => store.get('a').then(text)
    tap.tamper = (raw) => raw.replace(a.box, b.box)
    await expect(get()).rejects.toMatchObject({ code: 'peer.protocol' })
    tap.tamper = (raw) => raw.replace(a.box, a.box.replace(/.$/, a.box.endsWith('A') ? 'Q' : 'A'))
    await expect(get()).rejects.toThrow(/"a".*does not decrypt.*tampering/)
    tap.tamper = (raw) => raw.replace(/"kind":"value".*?\}\}/, '"kind":"done"}')
    await expect(get()).rejects.toThrow(
      /the server's answer does not fit this call: {"kind":"done"}/,
    )
    // The value is as expected, and still it says that it is not: no endless loop.
    tap.tamper = (raw) =>
      raw.replace('"kind":"done"', `"kind":"value","value":${JSON.stringify(a)}`)
    await expect(store.compareSet('a', 'of a', 'x')).rejects.toMatchObject({
      code: 'peer.protocol',
    })
    tap.tamper = undefined
    expect(await get()).toBe('x')
  })
})

describe('the end of a connection', () => {
  it('rejects what is pending and what comes with peer.lost', async () => {
    const own = await StoreServer.start()
    const store = await own.open(newRoomUrl(own.address))
    const pending = [store.get('a'), store.wait(['b'])].map((one) => one.catch((error) => error))
    await store.set('c', '') // so that they wait on the server
    await own.signaling.close()
    for (const error of await Promise.all(pending)) expect(error.code).toBe('peer.lost')
    await expect(store.get('c')).rejects.toThrow(/get\("c"\): signaling: .*stopped/)
    await own.close()
  })

  it('closing is idempotent, and names itself', async () => {
    const store = await server.open(newUrl())
    const late = store.get('a').catch((error) => error.message)
    store.close()
    store.close()
    expect(await late).toMatch(/get\("a"\): this store has been closed/)
    await expect(store.add('n', 1)).rejects.toMatchObject({ code: 'peer.lost' })
  })

  it('ends its waits on the server', async () => {
    const url = newUrl()
    const [a, b] = [await server.open(url), await server.open(url)]
    a.get('x').catch(() => undefined)
    await a.add('n', 1)
    const before = server.signaling.rendezvous.storeBytes
    a.close()
    await expect.poll(() => server.signaling.rendezvous.storeBytes).toBeLessThan(before)
    await b.set('x', '')
  })
})
