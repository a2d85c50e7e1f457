import { readFileSync } from 'node:fs'
import { afterEach, expect, test, vi } from 'vitest'
import * as dist from '../../../src/entries/distributed.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { TabringError } from '../../../src/util/errors.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { ifMember } from '../../support/members.ts'
import { memoryMesh } from '../../support/memory-mesh.ts'

// The calls of tests/golden/distributed.py, which PyTorch made on 4 ranks of gloo.

const size = 4
const { cases } = JSON.parse(
  readFileSync(new URL('../../golden/distributed.json', import.meta.url), 'utf8'),
) as { cases: Record<string, unknown[]> }

const inputSplits = [
  [2, 2, 1, 1],
  [3, 2, 2, 2],
  [2, 1, 1, 1],
  [2, 2, 2, 1],
]
const outputSplits = inputSplits.map((_, rank) => inputSplits.map((sizes) => sizes[rank]!))

const range = <T>(of: (index: number) => T) => Array.from({ length: size }, (_, index) => of(index))
const empty = (count = 2) => new Float32Array(count)
const received = (tensors: readonly Float32Array[]) => tensors.map((tensor) => [...tensor])
/** What PyTorch writes for what is not there. */
const orNull = (value: unknown) => value ?? null

const isRefused = (call: () => Promise<unknown>) =>
  call().then(
    () => false,
    (thrown) => thrown instanceof TabringError && thrown.code === 'graph.misuse',
  )

/** Leaves arguments out wherever the Python call does; ranks of one context have no default group, so it is given. */
const calls: Record<string, (group: ProcessGroup, rank: number) => Promise<unknown>> = {
  async gather(group, rank) {
    const out = rank === 0 ? range(() => empty()) : undefined
    await dist.gather(Float32Array.of(rank, 10 * rank), out, undefined, { group })
    return out ? received(out) : null
  },
  async scatter(group, rank) {
    const out = empty()
    const parts = rank === 0 ? range((to) => Float32Array.of(to, 7)) : undefined
    await dist.scatter(out, parts, undefined, { group })
    return [...out]
  },
  async all_to_all_single(group, rank) {
    const out = empty(size)
    const sent = Float32Array.from({ length: size }, (_, to) => 10 * rank + to)
    await dist.allToAllSingle(out, sent, undefined, undefined, { group })
    return [...out]
  },
  async all_to_all_single_uneven(group, rank) {
    const sum = (sizes: readonly number[]) => sizes.reduce((all, one) => all + one, 0)
    const sent = Float32Array.from({ length: sum(inputSplits[rank]!) }, (_, at) => 10 * rank + at)
    const out = empty(sum(outputSplits[rank]!))
    await dist.allToAllSingle(out, sent, outputSplits[rank], inputSplits[rank], { group })
    return [...out]
  },
  async all_to_all_single_some(group, rank) {
    const out = empty([5, 3, 4, 4][rank]!)
    const sent = Float32Array.from({ length: 4 }, (_, at) => 10 * rank + at)
    const takes = [[2, 1, 1, 1], [0, 1, 1, 1], undefined, []][rank]
    await dist.allToAllSingle(out, sent, takes, rank === 0 ? [2, 0, 1, 1] : null, { group })
    return [...out]
  },
  async all_gather_object(group, rank) {
    const out = range((): unknown => undefined)
    const object = { rank, names: Array.from({ length: rank }, () => 'ä') }
    expect(await dist.allGatherObject(out, object, { group })).toBe(out)
    return [out, null]
  },
  async gather_object(group, rank) {
    const out = rank === 0 ? range((): unknown => undefined) : undefined
    await dist.gatherObject([rank, 'x'.repeat(rank)] as unknown, out, undefined, { group })
    return orNull(out)
  },
  async broadcast_object_list(group, rank) {
    const objects: unknown[] = rank === 0 ? [{ a: 1 }, 'two', [3]] : [0, 0, 0]
    await dist.broadcastObjectList(objects, undefined, { group })
    return objects
  },
  async scatter_object_list(group, rank) {
    const out: unknown[] = [undefined, 'stays']
    const given = rank === 0 ? range((to): unknown => ['for', to]) : undefined
    await dist.scatterObjectList(out, given, undefined, { group })
    return out
  },
  async batch_isend_irecv(group, rank) {
    const out = empty()
    const works = dist.batchIsendIrecv([
      new dist.P2POp(dist.isend, Float32Array.of(rank, 5), (rank + 1) % size, { group }),
      new dist.P2POp(dist.irecv, out, (rank + size - 1) % size, { group }),
    ])
    for (const work of works) await work.wait()
    return [...out]
  },
  async recv(group, rank) {
    if (rank === 0) await dist.send(Float32Array.of(4, 2), 3, { group })
    const out = empty()
    const source = rank === 3 ? await dist.recv(out, 0, { group }) : null
    return [[...out], source]
  },
  async group_of_all(world) {
    const group = await world.newGroup()
    return [dist.getRank(group), dist.getWorldSize(group)]
  },
  async groups(world, rank) {
    const group = await world.newGroup([3, 1])
    const isOutside = group === dist.GroupMember.NON_GROUP_MEMBER
    const out = Float32Array.of(rank)
    const returned = await dist.allReduce(out, { group })
    const objects: unknown[] = [null, null]
    await dist.allGatherObject(objects, rank as unknown, { group })
    const ranks = [dist.getRank(group), dist.getWorldSize(group)]
    const got = isOutside ? await dist.recv(empty(), 1, { group }) : null
    const all = Float32Array.of(rank)
    await dist.allReduce(all, { group: world })
    return [isOutside, ranks, [...out], orNull(returned), objects, got, [...all]]
  },
  async destroy_group(world, rank) {
    const [first, second] = [ifMember(await world.newGroup())!, await world.newGroup()]
    await dist.destroyProcessGroup(first)
    const gone = [
      await isRefused(async () => dist.getRank(first)),
      await isRefused(() => dist.destroyProcessGroup(first)),
    ]
    const [there, all] = [Float32Array.of(rank), Float32Array.of(rank)]
    await dist.allReduce(there, { group: second })
    await dist.allReduce(all, { group: world })
    return [gone, dist.getRank(second), [...there], [...all]]
  },
}

afterEach(() => vi.restoreAllMocks())

test('every call of the file is made here', () => {
  expect(Object.keys(calls).sort()).toEqual(Object.keys(cases).sort())
})

test.each(Object.keys(calls))('%s as in PyTorch', async (name) => {
  vi.spyOn(console, 'warn').mockImplementation(() => undefined)
  const env = new VirtualEnv(size)
  const groups = memoryMesh(env, size, () => ({ delayMs: () => env.chance() * 5 }))
  const got = await env.until(Promise.all(groups.map(calls[name]!)))
  expect(got).toEqual(cases[name])
})
