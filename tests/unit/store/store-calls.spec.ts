import { describe, expect, it } from 'vitest'
import { limits } from '../../../src/peer/room/messages.ts'
import type { StoreCall, StoreMessage } from '../../../src/peer/room/store-calls.ts'
import { TokenBucket } from '../../../src/peer/room/token-bucket.ts'
import { StoreCalls } from '../../../src/peer/tab/store-calls.ts'
import { PeerError } from '../../../src/util/errors.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'

/** How fast a client calls, on a virtual clock. */

const add: StoreCall = { op: 'add', key: 'n', amount: 1 }

/** A server behind a network that stands still now and then, and brings what it held back all at once. */
class Network {
  readonly arrived: StoreMessage[] = []
  readonly calls: StoreCalls
  refusedAt: number | null = null
  maxUnderWay = 0
  private underWay = 0
  private held: (() => void)[] = []
  isStalled = false

  constructor(env: VirtualEnv) {
    const bucket = new TokenBucket(env, limits.storeCallsPerSec, limits.storeCallBurst)
    const pass = (what: () => void) => {
      if (this.isStalled) this.held.push(what)
      else env.after(20, what)
    }
    this.calls = new StoreCalls(env, (message) => {
      this.maxUnderWay = Math.max(this.maxUnderWay, ++this.underWay)
      pass(() => {
        if (!bucket.take()) this.refusedAt ??= env.now()
        this.arrived.push(message)
        pass(() => {
          this.underWay--
          const { id } = message
          // Waits that nobody answers: only that they are there.
          if (message.call.op === 'get') {
            this.calls.stored({ type: 'stored', id, answer: { kind: 'waiting' } })
          } else this.calls.stored({ type: 'stored', id, answer: { kind: 'done', sum: id } })
        })
      })
    })
  }

  goOn(): void {
    this.isStalled = false
    for (const what of this.held.splice(0)) what()
  }
}

describe('pace', () => {
  it('a client at full speed stays within the rate, whatever the network delays', async () => {
    const env = new VirtualEnv(3)
    const network = new Network(env)
    const total = 6000
    const all = Array.from({ length: total }, (_, i) => {
      const call: StoreCall = i % 7 === 3 ? { op: 'get', key: 'x', timeoutMs: 0 } : add
      return network.calls.call('test', Promise.resolve(call), i % 7 === 3 ? 0 : 1e9)
    })
    let stalls = 0
    while (network.arrived.length < total) {
      await env.advance(200 + env.chance() * 3000)
      network.isStalled = true
      await env.advance(env.chance() * 8000)
      network.goOn()
      stalls++
      expect(env.now()).toBeLessThan(600_000)
    }
    expect(stalls).toBeGreaterThan(5)
    expect(network.refusedAt).toBeNull()
    expect(network.maxUnderWay).toBe(limits.storeCallsAtOnce)
    expect(network.arrived.map((one) => one.id)).toEqual([...Array(total).keys()].map((i) => i + 1))
    await env.advance(100)
    expect(await all[total - 1]).toEqual({ kind: 'done', sum: total })
  })

  it('later calls are sent when many waits are pending: a wait takes no place in the queue', async () => {
    const env = new VirtualEnv()
    const network = new Network(env)
    const waits = Array.from({ length: 3 * limits.storeCallsAtOnce }, () =>
      network.calls.call('test', Promise.resolve({ op: 'get', key: 'x', timeoutMs: 0 }), 0),
    )
    const ended = Promise.allSettled(waits)
    const answer = network.calls.call('test', Promise.resolve(add))
    expect(await env.until(answer)).toMatchObject({ kind: 'done' })
    network.calls.end(new PeerError('signal.lost', 'gone'))
    for (const one of await ended) expect(one).toMatchObject({ reason: { code: 'peer.lost' } })
  })
})

describe('answers', () => {
  it('a missing answer is an error after its time, and frees its place', async () => {
    const env = new VirtualEnv()
    const sent: StoreMessage[] = []
    const calls = new StoreCalls(env, (message) => void sent.push(message))
    const lost = Array.from({ length: limits.storeCallsAtOnce }, () =>
      calls.call('store.add("n")', Promise.resolve(add)),
    ).map((one) => one.catch((error) => error))
    const next = calls.call('next', Promise.resolve(add), 5000).catch((error) => error)
    await env.advance(limits.goneMs)
    for (const error of await Promise.all(lost)) {
      expect(error).toMatchObject({ code: 'peer.timeout' })
      expect(error.message).toContain(`store.add("n"): no answer from the server within 15000`)
    }
    expect(sent).toHaveLength(limits.storeCallsAtOnce + 1)
    await env.advance(limits.goneMs + 4999)
    let isSettled = false
    void next.then(() => {
      isSettled = true
    })
    await env.advance(0)
    expect(isSettled).toBe(false)
    await env.advance(1)
    expect((await next).message).toContain('within 20000 ms')
    // Late answers, twice, and to calls that were never made.
    for (const id of [1, 1, 99]) calls.stored({ type: 'stored', id, answer: { kind: 'done' } })
  })

  it('a call that cannot be made rejects alone', async () => {
    const env = new VirtualEnv()
    const sent: StoreMessage[] = []
    const calls = new StoreCalls(env, (message) => void sent.push(message))
    const failed = calls.call('a', Promise.reject(new PeerError('config.invalid', 'no')))
    const good = calls.call('b', Promise.resolve(add))
    await expect(failed).rejects.toMatchObject({ code: 'config.invalid' })
    await env.advance(0)
    calls.stored({ type: 'stored', id: sent[0].id, answer: { kind: 'done' } })
    expect(await good).toEqual({ kind: 'done' })
  })

  it('close rejects queued and later calls, and sends nothing more', async () => {
    const env = new VirtualEnv()
    const sent: StoreMessage[] = []
    const calls = new StoreCalls(env, (message) => void sent.push(message))
    const all = Array.from({ length: 2 * limits.storeCallsAtOnce }, () =>
      calls.call('a', Promise.resolve(add)).catch((error) => error.message),
    )
    await env.advance(1)
    calls.end(new PeerError('signal.lost', 'the wire was cut'))
    calls.end(new PeerError('signal.lost', 'again'))
    expect(new Set(await Promise.all(all))).toEqual(new Set(['a: the wire was cut']))
    await expect(calls.call('b', Promise.resolve(add))).rejects.toThrow('b: the wire was cut')
    await env.advance(1e6)
    expect(sent).toHaveLength(limits.storeCallsAtOnce)
  })
})
