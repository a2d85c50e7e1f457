import { expect, test } from 'vitest'
import * as dist from '../../../src/entries/distributed.ts'
import type { CollectiveGroup } from '../../../src/peer/group/collective-group.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { memoryMesh } from '../../support/memory-mesh.ts'

const open = (size: number) => {
  const env = new VirtualEnv(size)
  const groups = memoryMesh(env, size, () => ({ delayMs: () => env.chance() * 5 }))
  return <T>(call: (group: ProcessGroup) => Promise<T>) => env.until(Promise.all(groups.map(call)))
}

/** What each rank has of [current, subgroups]: the ranks of each, and the sum of the members' numbers. */
async function show(
  [current, subgroups]: Awaited<ReturnType<typeof dist.newSubgroups>>,
  rank: number,
) {
  const ranksOf = (group: (typeof subgroups)[number]) =>
    group === dist.GroupMember.NON_GROUP_MEMBER ? null : dist.getProcessGroupRanks(group)
  const sum = Int32Array.of(rank)
  if (current) await dist.allReduce(sum, { group: current })
  return { own: current && ranksOf(current), all: subgroups.map(ranksOf), sum: sum[0] }
}

test('newSubgroups: equal groups in the order of ranks', async () => {
  const all = open(4)
  expect(await all(async (world) => show(await dist.newSubgroups(2, world), world.rank))).toEqual([
    { own: [0, 1], all: [[0, 1], null], sum: 1 },
    { own: [0, 1], all: [[0, 1], null], sum: 1 },
    { own: [2, 3], all: [null, [2, 3]], sum: 5 },
    { own: [2, 3], all: [null, [2, 3]], sum: 5 },
  ])
})

test('newSubgroups without a size: one for each machine', async () => {
  const all = open(3)
  const got = await all(async (world) => {
    Object.assign(world, { machines: [0, 1, 0] })
    return show(await dist.newSubgroups(undefined, world), world.rank)
  })
  expect(got.map(({ own, sum }) => [own, sum])).toEqual([
    [[0, 2], 2],
    [[1], 1],
    [[0, 2], 2],
  ])
})

test('newSubgroupsByEnumeration: some ranks in none', async () => {
  const all = open(3)
  const got = await all(async (world) =>
    show(await dist.newSubgroupsByEnumeration([[2, 0]], world), world.rank),
  )
  expect(got).toEqual([
    { own: [0, 2], all: [[0, 2]], sum: 2 },
    { own: undefined, all: [null], sum: 1 },
    { own: [0, 2], all: [[0, 2]], sum: 2 },
  ])
})

test('what cannot be divided is refused before any group is made', async () => {
  const all = open(3)
  await all(async (world) => {
    await expect(dist.newSubgroups(2, world)).rejects.toThrow(/a divisor of 3 ranks, got 2/)
    await expect(dist.newSubgroups(undefined, world)).rejects.toThrow(/groupSize is missing/)
    const twice = dist.newSubgroupsByEnumeration([[0, 1], [1]], world)
    await expect(twice).rejects.toThrow(/each rank in at most one, got rank 1 twice/)
    await expect(dist.newSubgroupsByEnumeration([], world)).rejects.toThrow(/got none/)
  })
})

test('isAvailable is true, isTorchelasticLaunched false without a launcher', () => {
  expect([dist.isAvailable(), dist.isTorchelasticLaunched()]).toEqual([true, false])
})

test('a group uses the deadlines that it is given, and others keep theirs', async () => {
  const env = new VirtualEnv(3)
  const groups = memoryMesh(env, 3)
  const made = await env.until(
    Promise.all(groups.map((group) => group.newGroup([0, 1], { timeoutMs: 500 }))),
  )
  const [first, second] = made as [CollectiveGroup, CollectiveGroup]
  expect(first.deadlineMs).toBe(500)
  expect(groups.map(({ deadlineMs }) => deadlineMs)).toEqual([30_000, 30_000, 30_000])
  first.deadlineMs = 700
  expect([second.deadlineMs, groups[0].deadlineMs]).toEqual([500, 30_000])
  // Rank 0 never comes.
  const beganMs = env.now()
  const late = second.barrier()
  await expect(env.until(late)).rejects.toMatchObject({ code: 'peer.timeout' })
  expect(env.now() - beganMs).toBeLessThan(1500)
})

test('newGroup refuses what it does not know', async () => {
  const [group] = memoryMesh(new VirtualEnv(1), 1)
  await expect(group.newGroup([0], { timeout: 3 } as never)).rejects.toThrow(
    /newGroup: .*timeoutMs.*timeout/s,
  )
  await expect(group.newGroup([0], { timeoutMs: -1 })).rejects.toThrow(/timeoutMs must be above 0/)
})

test('wait with a time gives up, while the call continues', async () => {
  const env = new VirtualEnv(2)
  const groups = memoryMesh(env, 2)
  const x = Int32Array.of(1)
  const work = dist.allReduce(x, { group: groups[0], asyncOp: true })
  await expect(work.wait(5)).rejects.toMatchObject({ code: 'peer.timeout' })
  expect(work.isCompleted()).toBe(false)
  expect(() => work.wait(0)).toThrow(/timeoutMs must be above 0/)
  const other = dist.allReduce(Int32Array.of(2), { group: groups[1] })
  await env.until(Promise.all([work.wait(10_000), other]))
  expect(x[0]).toBe(3)
})
