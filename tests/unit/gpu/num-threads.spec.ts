import { afterEach, beforeEach, expect, test, vi } from 'vitest'

/** Locks of a browser with several pages. `free`: ends the page that holds one. */
function fakeLocks() {
  const held = new Map<string, (() => void)[]>()
  const free = (name: string) => {
    const waiting = held.get(name)
    held.delete(name)
    for (const go of waiting ?? []) go()
  }
  const locks = {
    async request(name: string, ...[given, wait]: [unknown, (() => unknown)?]) {
      if (wait) {
        if (held.has(name)) await new Promise<void>((go) => held.get(name)!.push(go))
        return wait()
      }
      held.set(name, [])
      await (given as () => Promise<void>)()
      free(name)
    },
    query: async () => ({ held: [...held.keys()].map((name) => ({ name, mode: 'exclusive' })) }),
  }
  return { locks, hold: (name: string) => held.set(name, []), free }
}

class Channel {
  static all: Channel[] = []
  onmessage = () => undefined
  readonly unref = vi.fn()
  readonly close = vi.fn()
  constructor() {
    Channel.all.push(this)
  }
  readonly postMessage = () => undefined
}

let getNumThreads: typeof import('../../../src/gpu/num-threads.ts').getNumThreads
let shareCores: typeof import('../../../src/gpu/num-threads.ts').shareCores

beforeEach(async () => {
  Channel.all = []
  // Other specs of this process may have opened a device, or set the number.
  vi.resetModules()
  ;({ getNumThreads, shareCores } = await import('../../../src/gpu/num-threads.ts'))
  vi.stubGlobal('BroadcastChannel', Channel)
})
afterEach(() => vi.unstubAllGlobals())

test('a device has its share of the cores, and all of them once the page of another has closed', async () => {
  const { locks, hold, free } = fakeLocks()
  vi.stubGlobal('navigator', { locks, hardwareConcurrency: 8 })
  hold('tabring-cores of another page')
  hold('a lock of something else')
  const release = await shareCores()
  expect(getNumThreads()).toBe(4)
  free('tabring-cores of another page')
  await vi.waitFor(() => expect(getNumThreads()).toBe(8))
  const [channel] = Channel.all
  expect(channel.unref).toHaveBeenCalled()
  release()
  expect(channel.close).toHaveBeenCalled()
})

test('a page that may have no locks has all cores', async () => {
  const request = () => Promise.reject(new DOMException('denied', 'SecurityError'))
  vi.stubGlobal('navigator', { locks: { request }, hardwareConcurrency: 8 })
  const release = await shareCores()
  release()
  expect(getNumThreads()).toBe(8)
})

test('a page that is not isolated has one thread', () => {
  vi.stubGlobal('crossOriginIsolated', false)
  expect(getNumThreads()).toBe(1)
})
