import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest'
import { WebSocket } from 'ws'
import { isBackendAvailable } from '../../../src/distributed/group/backends.ts'
import type { InitProcessGroupOptions } from '../../../src/distributed/group/form-group.ts'
import { createProcessGroup } from '../../../src/distributed/group/process-group.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { newRoomUrl } from '../../../src/peer/room/room-url.ts'
import { HashStore } from '../../../src/peer/store/hash-store.ts'
import { StoreServer } from '../../support/store-server.ts'

let server: StoreServer
let plain: StoreServer
const groups: ProcessGroup[] = []
beforeAll(async () => {
  ;[server, plain] = await Promise.all([StoreServer.start({ relay: true }), StoreServer.start()])
  // As in Node 22 and newer.
  vi.stubGlobal('WebSocket', WebSocket)
})
afterAll(async () => {
  vi.unstubAllGlobals()
  await Promise.all([server.close(), plain.close()])
})
afterEach(async () => {
  await Promise.all(groups.splice(0).map((group) => group.leave()))
})

async function form(
  size: number,
  initMethod: string,
  more: Partial<InitProcessGroupOptions> = {},
): Promise<ProcessGroup[]> {
  const formed = await Promise.all(
    Array.from({ length: size }, (_, rank) =>
      createProcessGroup({ backend: 'relay', initMethod, rank, worldSize: size, ...more }),
    ),
  )
  groups.push(...formed)
  return formed
}

const kinds = (formed: ProcessGroup[]) =>
  new Set(formed.flatMap((group) => [...group.stats().links.values()].map(({ kind }) => kind)))

/** Sums whose bits show the order of additions. */
const sums = (formed: ProcessGroup[], length: number) =>
  Promise.all(
    formed.map(async (group) => {
      const numbers = Float32Array.from({ length }, (_, i) => 10 ** ((i * 7 + group.rank * 3) % 13))
      await group.allReduce(numbers)
      return new Uint32Array(numbers.buffer)
    }),
  )

describe('ranks linked by the relay', () => {
  it.each([
    [2, 'auto', 1],
    [4, 'mesh', 3],
    [4, 'ring', 2],
  ] as const)(
    '%i ranks in topology %s: the bits of links in memory',
    async (size, topology, count) => {
      const formed = await form(size, newRoomUrl(server.address), { topology })
      for (const group of formed) expect(group.stats().links.size).toBe(count)
      expect(kinds(formed)).toEqual(new Set(['relay']))
      const store = new HashStore()
      const local = await Promise.all(
        formed.map(({ rank }) =>
          createProcessGroup({ backend: 'local', store, topology, rank, worldSize: size }),
        ),
      )
      groups.push(...local)
      // One that fits a message, and one of several.
      for (const length of [1009, 300_007])
        expect(await sums(formed, length)).toEqual(await sums(local, length))
    },
  )

  it('leave no connection and no room, and form a group again', async () => {
    const url = newRoomUrl(server.address)
    const { rendezvous } = server.signaling
    for (let cycle = 0; cycle < 2; cycle++) {
      const formed = await form(3, url)
      // The store was closed when the group was formed: two sockets a link are left.
      await expect.poll(() => rendezvous.counts.connections).toBe(6)
      await Promise.all(groups.splice(0).map((group) => group.leave()))
      expect(formed).toHaveLength(3)
      await expect.poll(() => rendezvous.counts).toEqual({ rooms: 0, connections: 0 })
    }
  })

  it('a rank that is cut off is named by the others', async () => {
    const formed = await form(3, newRoomUrl(server.address))
    const pending = [0, 2].map((rank) =>
      expect(formed[rank].barrier()).rejects.toThrow(/lost rank 1: /),
    )
    formed[1].destroy()
    await Promise.all(pending)
  })

  it('by env://, whose variables a launcher gives', async () => {
    const url = new URL(newRoomUrl(server.address))
    const fields = new URLSearchParams(url.hash.slice(1))
    vi.stubEnv('MASTER_URL', `${server.address}/signal`)
    vi.stubEnv('ROOM_KEY', fields.get('key')!)
    vi.stubEnv('WORLD_SIZE', '2')
    vi.stubEnv('RANK', '0')
    const both = [0, 1].map((rank) =>
      createProcessGroup({ backend: 'relay', initMethod: 'env://', rank, worldSize: 2 }),
    )
    const formed = await Promise.all(both)
    groups.push(...formed)
    expect(kinds(formed)).toEqual(new Set(['relay']))
    // The choice is the environment's where none is given, as the mismatch shows.
    vi.stubEnv('RELAY', 'fallback')
    const apart = await Promise.allSettled(
      [{}, { relay: 'off' } as const].map((more, rank) =>
        createProcessGroup({ initMethod: 'env://', groupName: 'apart', rank, ...more }),
      ),
    )
    for (const outcome of apart)
      expect(String((outcome as PromiseRejectedResult).reason)).toMatch(/relay "fallback" from/)
    vi.stubEnv('RELAY', 'always')
    await expect(createProcessGroup({ initMethod: 'env://' })).rejects.toThrow(
      /expected off or fallback in RELAY, got "always"/,
    )
    vi.unstubAllEnvs()
  })
})

describe('what cannot be', () => {
  it('a server without a relay, as by default, says how to have one', async () => {
    const joining = form(2, newRoomUrl(plain.address))
    await expect(joining).rejects.toMatchObject({
      code: 'signal.refused',
      message: expect.stringMatching(
        /backend "relay" needs a signaling server with a relay, and this one has none.*--relay/,
      ),
    })
  })

  it.each<[Partial<InitProcessGroupOptions>, RegExp]>([
    [{ initMethod: 'broadcast:a' }, /backend "relay" sends .* wss:.* or env:\/\/, got broadcast:a/],
    [{ initMethod: 'opfs:a' }, /backend "relay" sends .*, got opfs:a/],
    [{ store: new HashStore() }, /backend "relay" sends .*, got the option store/],
    [{ links: new Map(), rank: 0 }, /backend "relay" sends .*, got the option links/],
    [{ relay: 'fallback' }, /relay: "fallback" needs backend "auto", got "relay"/],
    [{ relay: 'always' as 'off' }, /relay must be one of 'off', 'fallback'/],
  ])('%j', async (options, text) => {
    await expect(
      createProcessGroup({ backend: 'relay', worldSize: 1, ...options }),
    ).rejects.toThrow(text)
  })

  it('ranks that disagree about the fallback get an error', async () => {
    const initMethod = newRoomUrl(server.address)
    const outcomes = await Promise.allSettled(
      (['fallback', 'off'] as const).map((relay, rank) =>
        createProcessGroup({ initMethod, relay, rank, worldSize: 2 }),
      ),
    )
    for (const outcome of outcomes)
      expect(String((outcome as PromiseRejectedResult).reason)).toMatch(
        /ranks disagree about relay: relay "(off|fallback)" from rank/,
      )
  })

  it('a platform without WebSocket is refused, as isBackendAvailable says', async () => {
    expect(isBackendAvailable('relay')).toBe(true)
    vi.stubGlobal('WebSocket', undefined)
    Reflect.deleteProperty(globalThis, 'WebSocket')
    expect(isBackendAvailable('relay')).toBe(false)
    await expect(form(1, newRoomUrl(server.address))).rejects.toThrow(
      /^initProcessGroup: this platform has no WebSocket. .*Node 20 with --experimental-websocket/,
    )
    vi.stubGlobal('WebSocket', WebSocket)
  })
})
