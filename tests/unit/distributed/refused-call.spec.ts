import { afterEach, expect, test } from 'vitest'
import * as dist from '../../../src/entries/distributed.ts'
import type { CollectiveGroup } from '../../../src/peer/group/collective-group.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { memoryMesh } from '../../support/memory-mesh.ts'
import { memoryRing, outcomes } from '../../support/memory-ring.ts'

// Calls that a rank refuses before anything is sent, and what the other ranks come to know.

const one = () => Float32Array.of(1)
const wrong = <T>(value: unknown) => value as T

/** A call with `group`, right or wrong. */
type Call = (group: CollectiveGroup, isWrong: boolean) => Promise<unknown>

const calls: readonly (readonly [string, Call])[] = [
  ['allReduce', (group, bad) => dist.allReduce(bad ? wrong([1, 2]) : one(), { group })],
  [
    'allReduce, op',
    async (group, bad) => dist.allReduce(one(), { group, op: bad ? wrong('xor') : 'sum' }),
  ],
  ['reduce', (group, bad) => dist.reduce(one(), bad ? 9 : 0, { group })],
  ['broadcast', (group, bad) => dist.broadcast(bad ? wrong('x') : one(), 0, { group })],
  [
    'reduceScatter',
    (group, bad) => dist.reduceScatter(one(), bad ? [one()] : [one(), one(), one()], { group }),
  ],
  [
    'allGather',
    (group, bad) => dist.allGather(bad ? wrong(one()) : [one(), one(), one()], one(), { group }),
  ],
  [
    'gather',
    (group, bad) =>
      dist.gather(one(), group.rank === 0 || bad ? [one(), one(), one()] : undefined, 0, { group }),
  ],
  [
    'scatter',
    (group, bad) =>
      dist.scatter(
        bad ? wrong(null) : one(),
        group.rank === 0 ? [one(), one(), one()] : undefined,
        0,
        { group },
      ),
  ],
  [
    'allToAll',
    (group, bad) =>
      dist.allToAll([one(), one(), one()], bad ? [] : [one(), one(), one()], { group }),
  ],
  [
    'allToAllSingle',
    (group, bad) =>
      dist.allToAllSingle(new Float32Array(3), new Float32Array(bad ? 4 : 3), null, null, {
        group,
      }),
  ],
  ['barrier', async (group, bad) => dist.barrier(bad ? wrong({ group, timeout: 3 }) : { group })],
  [
    'allGatherObject',
    (group, bad) => dist.allGatherObject([0, 0, 0], wrong(bad ? () => 1 : 1), { group }),
  ],
  [
    'gatherObject',
    (group, bad) =>
      dist.gatherObject(1, group.rank === 0 ? [0, 0, 0] : null, bad ? 7 : 0, { group }),
  ],
  [
    'broadcastObjectList',
    (group, bad) => dist.broadcastObjectList(wrong(bad ? 'a' : ['a']), 0, { group }),
  ],
  [
    'scatterObjectList',
    (group, bad) =>
      dist.scatterObjectList(bad ? [] : [0], group.rank === 0 ? [1, 2, 3] : null, 0, { group }),
  ],
  ['group.allReduce', (group, bad) => group.allReduce(bad ? wrong([1]) : one())],
  [
    'group.allReduce, sequence',
    (group, bad) => group.allReduce(bad ? wrong([1]) : one(), { sequence: 4, bucket: 2 }),
  ],
  [
    'group.allGather, sequence',
    (group, bad) => group.allGather(bad ? wrong([1]) : one(), { sequence: 4, bucket: 2 }),
  ],
  ['group.broadcast', (group, bad) => group.broadcast(one(), bad ? 3 : 0)],
  [
    'group.gather',
    (group, bad) =>
      group.gather(one(), group.rank === 0 || bad ? new Float32Array(3) : undefined, 0),
  ],
  [
    'group.allReduce, avg',
    (group, bad) => group.allReduce(bad ? Int32Array.of(1) : one(), { op: 'avg' }),
  ],
  [
    'group.allGatherBytes',
    (group, bad) => group.allGatherBytes(bad ? wrong('x') : new Uint8Array(1)),
  ],
  ['newGroup', (group, bad) => (group as ProcessGroup).newGroup(bad ? [0, 0] : [0, 1])],
]

const worlds: [string, (env: VirtualEnv) => ProcessGroup[]][] = [
  ['fully linked', (env) => memoryMesh(env, 3)],
  ['in a ring', (env) => memoryRing(env, 3).groups],
]
let open: ProcessGroup[] = []
afterEach(() => {
  for (const group of open) group.destroy()
})

test.each(
  worlds.flatMap(([links, make]) =>
    calls.map(([name, call]) => [name, links, call, make] as const),
  ),
)('%s that one rank refuses, %s, ends the group at once, by name', async (_, links, call, make) => {
  for (const isLate of [false, true]) {
    const env = new VirtualEnv(1)
    open = make(env)
    const ends: Promise<unknown>[] = open.map(async (group) => {
      if (isLate === (group.rank === 1)) await new Promise<void>((done) => env.after(50, done))
      return call(group, group.rank === 1)
    })
    const errors = await env.until(outcomes(ends), 2000)
    expect(errors[1]?.message).not.toMatch(/this call/)
    for (const rank of [0, 2])
      expect(errors[rank]?.message, links).toMatch(/: rank 1 refused this call: (?!\w+: )/)
  }
})

test('a call that all ranks refuse leaves the group as it is', async () => {
  const env = new VirtualEnv(1)
  open = memoryMesh(env, 3)
  const onAll = ['allReduce', 'broadcast', 'allGatherObject', 'group.allReduce', 'newGroup']
  for (const [, call] of calls.filter(([name]) => onAll.includes(name)))
    await env.until(outcomes(open.map((group) => call(group, true))))
  const sums = open.map(() => one())
  await env.until(Promise.all(open.map((group, rank) => dist.allReduce(sums[rank]!, { group }))))
  expect(sums.map(([sum]) => sum)).toEqual([3, 3, 3])
})

test.each([
  ['send', dist.send, dist.recv],
  ['recv', dist.recv, dist.send],
])('a %s that a rank refuses ends the wait of the other one', async (_, refused, other) => {
  const env = new VirtualEnv(1)
  open = memoryMesh(env, 2)
  const errors = await env.until(
    outcomes([
      refused(wrong([1]), 1, { group: open[0]!, tag: 3 }),
      other(one(), 0, { group: open[1]!, tag: 3 }),
    ]),
    2000,
  )
  expect(errors[1]?.message).toMatch('rank 0 refused this call: tensor must be a typed array')
})

// As PyTorch's monitored_barrier: a rank that refuses its own call has not arrived, and the first rank names it at its timeout.
test.each([
  [1, [0, 2], /monitoredBarrier: rank 1 did not arrive within 700 ms/],
  [0, [1, 2], /monitoredBarrier via send #0: .*rank 0/],
])('a monitoredBarrier that rank %i refuses is no arrival', async (refusing, others, text) => {
  for (const isRepeated of [true, false]) {
    const env = new VirtualEnv(1)
    open = memoryMesh(env, 3)
    const call = (rank: number, timeoutMs = 700) =>
      dist.monitoredBarrier({ group: open[rank]!, env, timeoutMs })
    const [refused] = await env.until(outcomes([call(refusing, -1)]))
    expect(refused?.message).toMatch(/^monitoredBarrier: timeoutMs must be/)
    const errors = outcomes((isRepeated ? [0, 1, 2] : others).map((rank) => call(rank)))
    for (const error of await env.until(errors, 5000))
      isRepeated ? expect(error).toBeUndefined() : expect(error?.message).toMatch(text)
  }
})
