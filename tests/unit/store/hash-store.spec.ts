import { beforeEach, describe, expect, it } from 'vitest'
import { HashStore } from '../../../src/peer/store/hash-store.ts'
import { KeyTable, type WaitEnd } from '../../../src/peer/store/key-table.ts'
import { PrefixStore } from '../../../src/peer/store/prefix-store.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'

/** Stores in memory, on a virtual clock. */

const text = (value: Uint8Array) => new TextDecoder().decode(value)

let env: VirtualEnv
let store: HashStore
beforeEach(() => {
  env = new VirtualEnv()
  store = new HashStore({ env })
})

describe('waiting', () => {
  it('get times out after five minutes by default, as in torch, and the error names the key', async () => {
    expect(store.timeoutMs).toBe(300_000)
    const got = store.get('rank 3')
    const settled = got.catch((error) => error)
    await env.advance(299_999)
    await store.set('another', '')
    await env.advance(1)
    expect(await settled).toMatchObject({ code: 'peer.timeout' })
    await expect(got).rejects.toThrow(/get\("rank 3"\): timed out after 300000 ms without "rank 3"/)
  })

  it('names all keys that are not there, and only those', async () => {
    await store.set('b', '')
    const waiting = store.wait(['a', 'b', 'c', 'd'], 100)
    const message = waiting.catch((error) => error.message)
    await env.advance(50)
    await store.set('c', '')
    await env.advance(50)
    expect(await message).toContain('100 ms without "a", "d". ')
  })

  it('names 16 of many, and says how many more', async () => {
    const keys = Array.from({ length: 64 }, (_, i) => `rank${i}`)
    const waiting = store.wait(keys, 100)
    const message = waiting.catch((error) => error.message)
    await env.advance(100)
    expect(await message).toContain('"rank15" and 48 more.')
  })

  it('0 waits for ever', async () => {
    store.timeoutMs = 0
    const got = store.get('a')
    await env.advance(1e9)
    await store.set('a', 'at last')
    expect(text(await got)).toBe('at last')
  })

  it('wait waits again for a key that is deleted before the others come', async () => {
    await store.set('a', '')
    let isThere = false
    const waiting = store.wait(['a', 'b']).then(() => {
      isThere = true
    })
    await store.deleteKey('a')
    await store.set('b', '')
    await env.advance(1000)
    expect(isThere).toBe(false)
    await store.set('a', '')
    await waiting
  })

  it('gives the value of the moment in which the key came', async () => {
    const got = store.get('a')
    void store.set('a', 'first')
    void store.set('a', 'second')
    expect(text(await got)).toBe('first')
  })

  it('counts and compareSet wake who waits, as set does', async () => {
    const waiting = store.wait(['n', 'k'])
    await store.add('n', 0)
    await store.compareSet('k', '', 'x')
    await waiting
  })
})

describe('one after the other', () => {
  it('calls take effect in the order in which they are made', async () => {
    void store.set('a', '1')
    const sum = store.add('a', 1)
    const swapped = store.compareSet('a', '2', '3')
    void store.deleteKey('b')
    expect([await sum, text(await swapped), text(await store.get('a'))]).toEqual([2, '3', '3'])
  })

  it('100 adds at once give 100 values', async () => {
    const sums = await Promise.all(Array.from({ length: 100 }, () => store.add('n', 1)))
    expect(new Set(sums).size).toBe(100)
    expect(Math.max(...sums)).toBe(100)
  })

  it("callers' arrays stay theirs", async () => {
    const mine = new Uint8Array([1, 2])
    await store.set('a', mine)
    mine[0] = 9
    const got = await store.get('a')
    got[1] = 9
    const compared = await store.compareSet('a', 'x', 'y')
    compared[1] = 9
    expect([...(await store.get('a'))]).toEqual([1, 2])
  })
})

describe('the end', () => {
  it('rejects pending and later calls, and leaves no timer', async () => {
    const waits = [store.get('a'), store.wait(['b', 'c'])].map((one) =>
      one.catch((error) => error.code),
    )
    store.close()
    store.close()
    expect(await Promise.all(waits)).toEqual(['peer.lost', 'peer.lost'])
    await expect(store.set('a', '')).rejects.toMatchObject({ code: 'peer.lost' })
    await expect(store.numKeys()).rejects.toThrow(/numKeys.*this store has been closed/)
    await env.advance(1e6)
  })
})

describe('mistakes', () => {
  it.each<[string, (store: HashStore) => unknown, RegExp]>([
    ['a key', (s) => s.get(7 as never), /store.get: key must be a string, got 7/],
    ['a value', (s) => s.set('a', 7 as never), /set\("(p\/)?a"\).*a string or a Uint8Array, got 7/],
    [
      'an amount',
      (s) => s.add('a', 0.5),
      /add\("(p\/)?a"\).*amount must be a whole number, got 0.5/,
    ],
    ['no keys', (s) => s.wait('a' as never), /store.wait: keys must be an array, got "a"/],
    ['a time', (s) => s.wait(['a'], -1), /timeoutMs must be from 0 \(no limit\)/],
    ['for ever', (s) => s.wait(['a'], Number.POSITIVE_INFINITY), /timeoutMs must be from 0/],
  ])('%s of a wrong kind is refused in words', async (_, call, message) => {
    await expect(call(store)).rejects.toThrow(message)
    await expect(call(new PrefixStore('p', store) as never)).rejects.toThrow(message)
    expect(await store.numKeys()).toBe(0)
  })

  it('options of a wrong name or kind', () => {
    expect(() => new HashStore({ timeout: 5 } as never)).toThrow(/"timeout"/)
    expect(() => new HashStore({ timeoutMs: Number.NaN })).toThrow(/got NaN/)
    expect(() => new PrefixStore(store as never, 'p' as never)).toThrow(
      /PrefixStore: prefix must be a text/,
    )
  })

  it('a sum that numbers do not hold exactly', async () => {
    await store.add('n', Number.MAX_SAFE_INTEGER)
    await expect(store.add('n', 1)).rejects.toMatchObject({ code: 'config.invalid' })
    await store.set('n', '9223372036854775807')
    await expect(store.add('n', -1)).rejects.toThrow(/9007199254740991/)
  })
})

describe('PrefixStore', () => {
  it("two share a store without clashes; numKeys and the time-out are the store's", async () => {
    const a = new PrefixStore('a', store)
    const b = new PrefixStore('b', store)
    const inner = new PrefixStore('x', a)
    await a.set('k', 'of a')
    await b.set('k', 'of b')
    await inner.add('k', 5)
    await b.wait(['k'])
    expect(text(await a.get('k'))).toBe('of a')
    expect(text(await b.get('k'))).toBe('of b')
    expect(text(await store.get('a/x/k'))).toBe('5')
    expect(await b.numKeys()).toBe(3)
    expect(await b.deleteKey('k')).toBe(true)
    expect(text(await a.compareSet('k', 'of a', 'new'))).toBe('new')
    b.timeoutMs = 7
    expect(store.timeoutMs).toBe(7)
    const late = a.get('z').catch((error) => error.message)
    await env.advance(7)
    expect(await late).toContain('"a/z"')
  })

  it('closing one leaves the store open', async () => {
    new PrefixStore('a', store).close()
    await store.set('k', '')
  })
})

describe('KeyTable', () => {
  it('resolves waits in the order of asking, and none that was given up', async () => {
    const table = new KeyTable<number>(env)
    const received: string[] = []
    const note = (name: string) => (how: WaitEnd) => void received.push(`${name} ${how.kind}`)
    table.wait(['a'], 10, note('first'))
    const leave = table.wait(['a'], 10, note('left'))
    table.wait(['a', 'a', 'b'], 10, note('both'))
    table.wait([], 10, note('none'))
    leave()
    leave()
    table.set('a', 1)
    await env.advance(20)
    table.wait(['z'], 0, note('end'))
    table.close()
    expect(received).toEqual(['none there', 'first there', 'both late', 'end closed'])
    expect(table.size).toBe(0)
  })

  it('a waiter may get, set and delete at once when it resolves', () => {
    const table = new KeyTable<number>(env)
    const received: number[] = []
    table.wait(['a'], 0, () => {
      table.delete('a')
      table.wait(['a'], 0, () => void received.push(2))
      table.set('b', 0)
    })
    table.wait(['b'], 0, () => void received.push(1))
    const leave = table.wait(['a'], 0, () => void received.push(3))
    table.set('a', 0)
    expect(received).toEqual([1])
    table.wait(['a'], 0, leave)
    table.set('a', 0)
    expect(received).toEqual([1, 3, 2])
    table.delete('a')
    table.wait(['a'], 0, () => end())
    const end = table.wait(['a'], 0, () => void received.push(4))
    table.set('a', 0)
    expect(received).toEqual([1, 3, 2])
  })
})
