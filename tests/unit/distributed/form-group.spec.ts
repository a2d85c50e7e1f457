import { afterEach, describe, expect, it, onTestFinished, vi } from 'vitest'
import { isBackendAvailable } from '../../../src/distributed/group/backends.ts'
import {
  createProcessGroup,
  destroyProcessGroup,
  initProcessGroup,
  isInitialized,
} from '../../../src/distributed/group/process-group.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { HashStore } from '../../../src/peer/store/hash-store.ts'
import { PeerError } from '../../../src/util/errors.ts'
import { socketFrom } from '../../support/signal-socket.ts'
import { StoreServer } from '../../support/store-server.ts'

/** `size` ranks of one context, over real message channels. */
function form(size: number, store: HashStore, more: object = {}): Promise<ProcessGroup[]> {
  return Promise.all(
    Array.from({ length: size }, (_, rank) =>
      createProcessGroup({ backend: 'local', store, rank, worldSize: size, ...more }),
    ),
  )
}

const leaveAll = (groups: ProcessGroup[]) => Promise.all(groups.map((group) => group.leave()))

const openPorts = () =>
  process.getActiveResourcesInfo().filter((name) => name === 'MessagePort').length

/** The timers that are set from now on and have neither run nor been cleared: other specs of this worker have theirs. */
function watchTimers(): ReadonlySet<unknown> {
  const pending = new Set<unknown>()
  const { setTimeout: set, clearTimeout: clear } = globalThis
  vi.stubGlobal('setTimeout', (run: (...given: unknown[]) => void, ...given: [number?]) => {
    const timer = set(
      () => {
        pending.delete(timer)
        run()
      },
      ...given,
    )
    pending.add(timer)
    return timer
  })
  vi.stubGlobal('clearTimeout', (timer: NodeJS.Timeout) => {
    pending.delete(timer)
    clear(timer)
  })
  return pending
}

afterEach(() => {
  vi.unstubAllEnvs()
  vi.unstubAllGlobals()
  return destroyProcessGroup()
})

describe('groups of ranks in one context', () => {
  it.each([
    [1, 'auto', 0],
    [2, 'auto', 1],
    [9, 'auto', 8],
    [9, 'ring', 2],
    [16, 'auto', 15],
    [17, 'auto', 2],
  ] as const)(
    '%i ranks in topology %s have %i links each, and add up',
    async (size, topology, links) => {
      const groups = await form(size, new HashStore(), { topology })
      for (const group of groups) expect(group.stats().links.size).toBe(links)
      const sums = await Promise.all(
        groups.map(async (group) => {
          const numbers = Float32Array.from({ length: 1009 }, (_, i) => group.rank + (i % 7))
          await group.allReduce(numbers)
          return numbers
        }),
      )
      const expected = Float32Array.from(
        { length: 1009 },
        (_, i) => (size * (size - 1)) / 2 + size * (i % 7),
      )
      for (const sum of sums) expect(sum).toEqual(expected)
      await leaveAll(groups)
    },
  )

  it('five groups in a row on one store leave no ports, timers or keys', async () => {
    const store = new HashStore()
    await leaveAll(await form(4, store))
    const portsBefore = openPorts()
    const timers = watchTimers()
    for (let cycle = 0; cycle < 5; cycle++) {
      const groups = await form(4, store)
      expect(openPorts()).toBeGreaterThan(portsBefore)
      expect(timers.size).toBeGreaterThan(0)
      expect(groups[0].epoch).toBe(cycle + 1)
      await leaveAll(groups)
    }
    // Ports close in a later task.
    await expect.poll(() => [openPorts(), timers.size], { timeout: 3000 }).toEqual([portsBefore, 0])
    expect(await store.numKeys()).toBe(1)
  })

  it('groups of different names share a store and stay separate', async () => {
    const store = new HashStore()
    const both = await Promise.all([
      form(2, store, { groupName: 'a' }),
      form(3, store, { groupName: 'b' }),
    ])
    expect(both.map((groups) => groups[0].size)).toEqual([2, 3])
    await Promise.all(both.map(leaveAll))
  })
})

describe('the default group', () => {
  it('is there from its forming to its end, once at a time', async () => {
    const options = { backend: 'local', rank: 0, worldSize: 1 } as const
    const store = new HashStore()
    const joining = initProcessGroup({ ...options, store })
    await expect(initProcessGroup({ ...options, store })).rejects.toThrow(
      /already in a process group/,
    )
    await joining
    expect(isInitialized()).toBe(true)
    await expect(initProcessGroup({ ...options, store })).rejects.toThrow(
      /already in a process group of 1\./,
    )
    await destroyProcessGroup()
    expect(isInitialized()).toBe(false)
    await initProcessGroup({ ...options, store })
  })

  it('without an argument is env://', async () => {
    await expect(initProcessGroup()).rejects.toThrow(/env: MASTER_ADDR is not set/)
    const server = await StoreServer.start()
    onTestFinished(() => server.close())
    const { hostname, port } = new URL(server.address)
    const variables = {
      ...{ RANK: '0', WORLD_SIZE: '1', MASTER_ADDR: hostname, MASTER_PORT: port },
      ...{ ROOM_KEY: 'k'.repeat(43) },
    }
    for (const [name, value] of Object.entries(variables)) vi.stubEnv(name, value)
    vi.stubGlobal('WebSocket', socketFrom(server.origin))
    const group = await initProcessGroup()
    expect([group.rank, group.size, group.backend]).toEqual([0, 1, 'auto'])
  })

  it.each([
    ['MASTER_ADDR', ['', 'a b', 'http://x', '127.0.0.1:80', 'x/y'], 'without a scheme and a port'],
    ['MASTER_PORT', ['', '0', '99999', 'abc', '1e3'], 'from 1 to 65535'],
    ['MASTER_URL', ['', 'foo', 'ftp://x'], 'wss://host/signal'],
    ['RANK', ['', '-1', '2', 'x'], 'whole number'],
    ['WORLD_SIZE', ['', '0', '1.5'], 'whole number, at least 1'],
    ['RELAY', ['', 'always'], 'off or fallback'],
  ])(
    'a wrong %s is named with its value before anything is opened',
    async (name, values, allowed) => {
      const right = {
        ...{ RANK: '0', WORLD_SIZE: '2', MASTER_ADDR: '::1', MASTER_PORT: '2' },
        ...{ ROOM_KEY: 'k'.repeat(43) },
      }
      for (const [name, value] of Object.entries(right)) vi.stubEnv(name, value)
      const opened = vi.fn()
      vi.stubGlobal('WebSocket', opened)
      for (const value of values) {
        vi.stubEnv(name, value)
        await expect(initProcessGroup(), value).rejects.toMatchObject({
          code: 'config.invalid',
          message: expect.stringMatching(`expected .*${allowed}.* in ${name}, got "${value}"`),
        })
      }
      vi.stubEnv(name, (right as Record<string, string>)[name])
      vi.stubEnv('ROOM_KEY', 'secret')
      await expect(initProcessGroup()).rejects.toThrow(/43 letters.* in ROOM_KEY, got 6 characters/)
      expect(opened).not.toHaveBeenCalled()
    },
  )

  it.each([
    ['http://here:1', 'ws://there:2'],
    ['https://here:1', 'wss://there:2'],
  ])('from a page of %s env:// is %s', async (origin, wanted) => {
    const variables = {
      ...{ RANK: '0', WORLD_SIZE: '1', MASTER_ADDR: 'there', MASTER_PORT: '2' },
      ...{ ROOM_KEY: 'k'.repeat(43) },
    }
    for (const [name, value] of Object.entries(variables)) vi.stubEnv(name, value)
    vi.stubGlobal('location', { origin })
    const asked: string[] = []
    vi.stubGlobal(
      'WebSocket',
      class {
        constructor(url: string) {
          asked.push(String(url))
          throw new Error('no network here')
        }
      },
    )
    await expect(initProcessGroup({ timeoutMs: 200 })).rejects.toThrow()
    expect(new Set(asked.map((url) => url.replace(/(:\d).*/, '$1')))).toEqual(new Set([wanted]))
  })

  it('is destroyed while it still joins, and leaves no key in the store', async () => {
    const store = new HashStore()
    const joining = initProcessGroup({ backend: 'local', store, rank: 1, worldSize: 2 })
    const failed = expect(joining).rejects.toMatchObject({ code: 'peer.aborted' })
    await store.wait(['group/default/0/rank/1'])
    await destroyProcessGroup()
    await failed
    expect(await store.deleteKey('group/default/0/rank/1')).toBe(false)
  })
})

describe('what cannot be', () => {
  it('a missing rank is named within the given time', async () => {
    const joining = createProcessGroup({
      ...{ backend: 'local', store: new HashStore(), rank: 0, worldSize: 3 },
      timeoutMs: 300,
    })
    await expect(joining).rejects.toThrow(
      /rank 0 waited 300 ms for 3 ranks: missing ranks 1 and 2\./,
    )
  })

  it('ranks without WebRTC get an error that says what to do, on both sides', async () => {
    const store = new HashStore()
    const outcomes = await Promise.allSettled(
      [0, 1].map((rank) => createProcessGroup({ backend: 'webrtc', store, rank, worldSize: 2 })),
    )
    for (const outcome of outcomes) {
      expect(outcome.status).toBe('rejected')
      const { reason } = outcome as PromiseRejectedResult
      expect(reason).toBeInstanceOf(PeerError)
      expect(reason).toMatchObject({ code: 'peer.unreachable' })
      expect(reason.message).toMatch(
        /rank 0 .* and rank 1 .* do not both have WebRTC.*lendPage\(\)/,
      )
    }
    // The next try begins in a new round.
    expect(await store.numKeys()).toBe(1)
    await leaveAll(await form(2, store))
  })

  it.each([
    [{ store: new HashStore(), rank: 0 }, /worldSize is missing/],
    [{ store: new HashStore(), rank: 2, worldSize: 2 }, /rank must be from 0 to 1, got 2/],
    [{ store: new HashStore(), initMethod: 'env://', worldSize: 1 }, /got store and initMethod/],
    [
      { initMethod: 'tcp://host:1', worldSize: 1 },
      /expected an initMethod like wss:.* A tab cannot listen/,
    ],
    [{ initMethod: 'wss://host/#room=secret', worldSize: 1 }, /room= with 32 hex digits/],
    [
      { initMethod: 'wss://host/room', worldSize: 1 },
      /^initProcessGroup: wss:\/\/host\/room has no #key=/,
    ],
    [{ initMethod: 'broadcast:a/b', worldSize: 1 }, /expected a room name of 1 to 100 letters/],
    [{ initMethod: 'broadcast:a', worldSize: 1 }, /SharedWorker/],
    [{ initMethod: 'opfs:a', worldSize: 1 }, /origin private file system/],
    [{ backend: 'nccl', worldSize: 1 }, /got "nccl": webrtc reaches/],
    [{ backend: 'cpu:gloo,cuda:nccl', worldSize: 1 }, /got "cpu:gloo,cuda:nccl": auto chooses/],
    [{ backend: 'rtc', worldSize: 1 }, /backend must be one of 'auto'/],
    [{ initMethod: 'file:///tmp/x', worldSize: 1 }, /use opfs:room/],
    [{ worldsize: 1 }, /got "worldsize"\. Write worldSize/],
    [{ world_size: 1 }, /got "world_size"\. Write worldSize/],
    [{ timeout: 1 }, /got "timeout"\. Write timeoutMs/],
    ...[Number.NaN, -5, 0, '30', Number.POSITIVE_INFINITY, 2 ** 31].flatMap(
      (ms): [object, RegExp][] => [
        [
          { store: new HashStore(), worldSize: 1, timeoutMs: ms },
          /: timeoutMs must be above 0 and/,
        ],
        [
          { links: new Map(), worldSize: 1, rank: 0, joinTimeoutMs: ms },
          /joinTimeoutMs must be abo/,
        ],
      ],
    ),
  ])('%j', async (options, text) => {
    const failed = createProcessGroup(options as object)
    await expect(failed).rejects.toThrow(text)
    await expect(failed).rejects.not.toThrow(/secret/)
  })

  it('isBackendAvailable distinguishes backends', () => {
    expect(isBackendAvailable('local')).toBe(true)
    expect(isBackendAvailable('webrtc')).toBe(false)
    expect(isBackendAvailable('nccl')).toBe(false)
  })
})
