import { expect, test } from 'vitest'
import { monitoredBarrier } from '../../../src/distributed/call/monitored-barrier.ts'
import {
  allGatherObject,
  broadcastObjectList,
  gatherObject,
  scatterObjectList,
} from '../../../src/distributed/call/objects.ts'
import { gatherJson } from '../../../src/peer/group/gather-json.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { measureLinks } from '../../../src/peer/group/measure-links.ts'
import type { PeerError } from '../../../src/util/errors.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { memoryMesh } from '../../support/memory-mesh.ts'
import { memoryRing, outcomes } from '../../support/memory-ring.ts'

// Functions that are made of several collectives differ in what these are called for.

type Call = (group: ProcessGroup) => Promise<unknown>

const named: Record<string, Call> = {
  allGatherObject: (group) => allGatherObject(new Array(group.size), 1, { group }),
  gatherObject: (group) =>
    gatherObject(1, group.rank === 0 ? new Array(group.size) : undefined, 0, { group }),
  broadcastObjectList: (group) => broadcastObjectList([1], 0, { group }),
  scatterObjectList: (group) =>
    scatterObjectList([undefined], group.rank === 0 ? group.ranks : undefined, 0, { group }),
  newGroup: (group) => group.newGroup([0, 1]),
  measureLinks: (group) => measureLinks(group),
  training: (group) => gatherJson('training', group, 1, isOne),
}

const isOne = (received: unknown): received is 1 => received === 1

/** Calls that differ by their own names. */
const plain: Record<string, Call> = {
  allGatherBytes: (group) => group.allGatherBytes(new Uint8Array(3)),
  allReduce: (group) => group.allReduce(new Float32Array(4)),
  barrier: (group) => group.barrier(),
}

const pairs = Object.keys(named).flatMap((first) =>
  [...Object.keys(named), ...Object.keys(plain)]
    .filter((second) => second !== first)
    .map((second) => [first, second] as const),
)

test.each(pairs)('%s and %s: both are named on all ranks', async (first, second) => {
  const calls = { ...named, ...plain }
  for (const make of [memoryMesh, (env: VirtualEnv, size: number) => memoryRing(env, size).groups])
    for (const size of [2, 3]) {
      const env = new VirtualEnv(1)
      const groups = make(env, size)
      const all = groups.map((group) => calls[group.rank === 1 ? second : first]!(group))
      for (const error of (await env.until(outcomes(all), 1000)) as PeerError[]) {
        expect(error.code).toBe('peer.mismatch')
        const [, ...received] = /rank \d runs (\S+?),? .*rank \d runs (\S+?),? /.exec(
          error.message,
        )!
        expect(received.sort()).toEqual([first, second].sort())
      }
    }
})

test('collectives without keys reject as a mismatch when ranks begin different ones', async () => {
  const env = new VirtualEnv(1)
  const groups = memoryMesh(env, 3)
  const all = groups.map((group) =>
    group.rank === 1
      ? group.allGatherConcat(new Float32Array(4))
      : group.allReduce(new Float32Array(12)),
  )
  for (const error of (await env.until(outcomes(all), 1000)) as PeerError[]) {
    expect(error.code).toBe('peer.mismatch')
    expect(error.message).toMatch(/runs allGather of 12 /)
    expect(error.message).toMatch(/runs allReduce of 12 /)
  }
})

test.each(['gather', 'scatter', 'allToAll'] as const)(
  '%s in a ring is named when ranks begin different collectives',
  async (name) => {
    const env = new VirtualEnv(1)
    const { groups } = memoryRing(env, 4)
    const of = (length: number) => new Float32Array(length)
    const call: Record<typeof name, Call> = {
      gather: (group) => group.gather(of(4), group.rank === 0 ? of(16) : undefined, 0),
      scatter: (group) => group.scatter(group.rank === 0 ? of(16) : undefined, of(4), 0),
      allToAll: (group) => group.allToAll(of(4), of(4)),
    }
    const other: Call = (group) =>
      name === 'scatter' ? group.broadcast(of(16), 0) : group.allGatherConcat(of(4))
    const all = groups.map((group) => (group.rank === 1 ? other : call[name])(group))
    for (const error of (await env.until(outcomes(all), 1000)) as PeerError[])
      expect(error.message).toMatch(new RegExp(`runs ${name}, via `))
  },
)

test.each<[string, (group: ProcessGroup, env: VirtualEnv) => Promise<unknown>, RegExp]>([
  [
    'allGatherObject',
    (group) => named['allGatherObject']!(group),
    /^allGatherObject via allGatherU32 #0: rank 0 waited 30000 ms/,
  ],
  [
    'monitoredBarrier',
    (group, env) => monitoredBarrier({ group, env }),
    /^monitoredBarrier via send #0: monitoredBarrier: rank 1 did not arrive/,
  ],
])('%s that others never call is named when its time is over', async (_, call, text) => {
  const env = new VirtualEnv(1)
  const [group] = memoryMesh(env, 2) as [ProcessGroup, ProcessGroup]
  const [error] = await env.until(outcomes([call(group, env)]), 60_000)
  expect(error!.message).toMatch(text)
})

test('a label is refused when it is not ASCII or too long for START', async () => {
  const env = new VirtualEnv(1)
  const [group] = memoryMesh(env, 2) as [ProcessGroup, ProcessGroup]
  for (const label of ['Größe', 'x'.repeat(33)]) {
    const [error] = await env.until(outcomes([group.barrier({ label })]))
    expect(error).toMatchObject({
      code: 'config.invalid',
      message: expect.stringContaining('expected a label of at most 32 ASCII characters'),
    })
  }
})

test('gatherJson rejects and names the rank when its text is no JSON', async () => {
  const env = new VirtualEnv(1)
  const groups = memoryMesh(env, 2)
  const label = 'training'
  const all = [
    gatherJson(label, groups[0]!, 1, isOne),
    groups[1]!.allGatherBytes(new Uint8Array(5), { label }),
  ]
  const [error] = (await env.until(outcomes(all))) as PeerError[]
  expect(error!.code).toBe('peer.protocol')
  expect(error!.message).toMatch(/^training: rank 1 sent 5 bytes that are not JSON/)
})

test('gatherJson rejects and names the rank when its value is no object', async () => {
  const env = new VirtualEnv(1)
  const groups = memoryMesh(env, 2)
  const all = [
    allGatherObject(new Array(2), 1, { group: groups[0]! }),
    groups[1]!.allGatherBytes(new Uint8Array(5), { label: 'allGatherObject' }),
  ]
  const [error] = (await env.until(outcomes(all))) as PeerError[]
  expect(error!.code).toBe('peer.protocol')
  expect(error!.message).toMatch(/^allGatherObject: rank 1 sent 5 bytes that are not an object/)
})
