import { afterEach, describe, expect, test } from 'vitest'
import * as dist from '../../../src/distributed/index.ts'
import { Parameter } from '../../../src/graph/parameter.ts'
import type { CollectiveGroup } from '../../../src/peer/collective-group.ts'
import type { ProcessGroup } from '../../../src/peer/group.ts'
import { systemEnv } from '../../../src/util/env.ts'
import { memoryMesh } from '../../support/memory-mesh.ts'
import { outcomes } from '../../support/memory-ring.ts'
import { VirtualEnv } from '../../support/virtual-env.ts'

// The functions with a group of their own each: many ranks in one context have no default group.

const open = (size: number) => {
  const env = new VirtualEnv(size)
  const groups = memoryMesh(env, size, () => ({ delayMs: () => env.chance() * 5 }))
  const all = <T>(call: (group: ProcessGroup, rank: number) => Promise<T>) =>
    env.until(Promise.all(groups.map(call)))
  return { env, groups, all }
}

afterEach(() => dist.destroyProcessGroup())

describe('tensors', () => {
  test('sums of arrays and of parameters', async () => {
    const { all } = open(3)
    const got = await all(async (group, rank) => {
      const array = Int32Array.of(rank, 10 * rank)
      const parameter = new Parameter([2], Float32Array.of(rank + 1, 4))
      await dist.allReduce(array, { group })
      await dist.allReduce(parameter, { group, op: dist.ReduceOp.AVG })
      const least = Float32Array.of(rank - 1)
      await dist.reduce(least, 1, { group, op: dist.ReduceOp.MIN })
      return [...array, ...(await parameter.read()), rank === 1 ? least[0] : 'undefined']
    })
    expect(got).toEqual([
      [3, 30, 2, 4, 'undefined'],
      [3, 30, 2, 4, -1],
      [3, 30, 2, 4, 'undefined'],
    ])
  })

  test('lists: reduceScatter, allGather, gather, scatter, allToAll', async () => {
    const { all } = open(3)
    const got = await all(async (group, rank) => {
      const list = () => [0, 1, 2].map(() => new Float32Array(2))
      const own = Float32Array.of(rank, rank + 10)
      const inputs = [0, 1, 2].map((to) => Float32Array.of(rank * 10 + to, 1))
      const reduced = new Float32Array(2)
      await dist.reduceScatter(reduced, inputs, { group })
      const gathered = list()
      await dist.allGather(gathered, own, { group })
      const whole = new Float32Array(6)
      await dist.allGatherIntoTensor(whole, own, { group })
      const atTwo = rank === 2 ? list() : undefined
      await dist.gather(own, atTwo, 2, { group })
      const part = new Float32Array(2)
      await dist.scatter(part, rank === 1 ? inputs : undefined, 1, { group })
      const turned = list()
      await dist.allToAll(turned, inputs, { group })
      const copy = Uint8Array.of(rank)
      await dist.broadcast(copy, 2, { group })
      const flat = (arrays: Float32Array[] | undefined) => arrays?.flatMap((array) => [...array])
      return [
        [...reduced],
        flat(gathered),
        [...whole],
        flat(atTwo),
        [...part],
        flat(turned),
        copy[0],
      ]
    })
    const whole = [0, 10, 1, 11, 2, 12]
    got.forEach((one, rank) => {
      expect(one).toEqual([
        [30 + 3 * rank, 3],
        whole,
        whole,
        rank === 2 ? whole : undefined,
        [10 + rank, 1],
        [rank, 1, 10 + rank, 1, 20 + rank, 1],
        2,
      ])
    })
  })

  test('asyncOp gives a handle; messages have handles too', async () => {
    const { env, groups } = open(2)
    const arrays = [Float32Array.of(1), Float32Array.of(2)]
    const works = groups.map((group, rank) =>
      dist.allReduce(arrays[rank]!, { group, asyncOp: true }),
    )
    expect(works.map((work) => work.isCompleted())).toEqual([false, false])
    await env.until(Promise.all(works.map((work) => work.wait())))
    expect(works.map((work) => work.isCompleted())).toEqual([true, true])
    expect(arrays.map((array) => array[0])).toEqual([3, 3])
    const got = new Float32Array(1)
    const received = dist.irecv(got, 0, { group: groups[1], tag: 7 })
    await env.until(
      Promise.all([
        dist.send(Float32Array.of(9), 1, { group: groups[0], tag: 7 }),
        received.wait(),
      ]),
    )
    expect(got[0]).toBe(9)
  })

  test('ranks count among all; a rank outside of a group does nothing', async () => {
    const { all } = open(4)
    const got = await all(async (world, rank) => {
      const group: CollectiveGroup | undefined = await world.newGroup([3, 1])
      const array = Float32Array.of(rank)
      await dist.broadcast(array, 3, { group })
      await dist.barrier({ group: world })
      return array[0]
    })
    expect(got).toEqual([0, 3, 2, 3])
  })

  test('wrong arguments are named', async () => {
    const { groups } = open(2)
    const [group] = groups
    const array = Float32Array.of(1)
    await expect(dist.broadcast(array, 5, { group })).rejects.toThrow(
      /broadcast: expected a rank of the group \[0, 1\], got 5/,
    )
    expect(() => dist.allReduce(array, { group, operation: 'sum' } as never)).toThrow(
      /allReduce: expected options among group, asyncOp, op, got "operation"/,
    )
    expect(() => dist.allReduce(array, { group, op: 'SUM' as never })).toThrow(/op must be one of/)
    await expect(dist.allGather([array], array, { group })).rejects.toThrow(/list of 2 tensors/)
    await expect(
      dist.reduceScatter(array, [array, Float32Array.of(1, 2)], { group }),
    ).rejects.toThrow(/tensors of 1 elements, got 2 in tensor 1/)
    await expect(dist.allReduce(Int32Array.of(1), { group, op: 'avg' })).rejects.toThrow(
      /average of float32 or float16, got int32/,
    )
    await expect(dist.allReduce(new Float64Array(1) as never, { group })).rejects.toThrow(
      /expected a Float32Array, .*got Float64Array/,
    )
    await expect(dist.allReduce(array)).rejects.toThrow(/Call initProcessGroup\(\) first/)
  })

  test('without a group they use the default one', async () => {
    expect(dist.isInitialized()).toBe(false)
    await dist.initProcessGroup({ rank: 0, worldSize: 1, links: new Map() })
    const array = Float32Array.of(4)
    await dist.allReduce(array)
    const alone = await dist.newGroup([0])
    expect([array[0], dist.getRank(), dist.getWorldSize(alone), dist.isInitialized()]).toEqual([
      4,
      0,
      1,
      true,
    ])
  })
})

describe('objects', () => {
  const objects = [
    { name: 'a', when: new Date(5) },
    new Map([['k', new Set([1n])]]),
    [undefined, Float32Array.of(1.5), 'ä'],
  ]

  test('allGatherObject, gatherObject, broadcastObjectList, scatterObjectList', async () => {
    const { all } = open(3)
    const got = await all(async (group, rank) => {
      const everyones = await dist.allGatherObject(objects[rank], group)
      const atOne = await dist.gatherObject(objects[rank], 1, group)
      const list: unknown[] = rank === 2 ? [...objects] : [0, 0, 0]
      await dist.broadcastObjectList(list, 2, group)
      const own = await dist.scatterObjectList(rank === 0 ? objects : undefined, 0, group)
      return { everyones, atOne, list, own }
    })
    got.forEach(({ everyones, atOne, list, own }, rank) => {
      expect(everyones).toEqual(objects)
      expect(atOne).toEqual(rank === 1 ? objects : undefined)
      expect(list).toEqual(objects)
      expect(own).toEqual(objects[rank])
    })
  })

  test('what cannot travel is refused before anything is sent', async () => {
    const { groups } = open(2)
    await expect(dist.allGatherObject({ run: () => 1 }, groups[0])).rejects.toThrow(
      /allGatherObject: expected plain objects, .*got something else/,
    )
    expect(groups[0]!.stats().payloadBytesSent).toBe(0)
  })
})

describe('monitoredBarrier', () => {
  test('opens when all have come', async () => {
    const { env, groups } = open(4)
    let isOpen = false
    const early = Promise.all(
      groups.slice(0, 3).map((group) => dist.monitoredBarrier({ group, env, timeoutMs: 9000 })),
    ).then(() => {
      isOpen = true
    })
    await env.advance(4000)
    expect(isOpen).toBe(false)
    await env.until(Promise.all([early, dist.monitoredBarrier({ group: groups[3]!, env })]))
  })

  test.each([
    [false, /monitoredBarrier: rank 1 did not come within 700 ms/],
    [true, /monitoredBarrier: ranks 1, 3 did not come within 700 ms/],
  ])('names who is missing, on all ranks (all: %s)', async (waitAllRanks, text) => {
    const { env, groups } = open(4)
    const options = { env, timeoutMs: 700, waitAllRanks }
    const errors = await env.until(
      outcomes([
        ...[0, 2].map((rank) => dist.monitoredBarrier({ group: groups[rank]!, ...options })),
        groups[1]!.failed.then((error) => Promise.reject(error)),
      ]),
      3000,
    )
    for (const error of errors) expect(error?.message).toMatch(text)
  })

  test('by the clock of the system', async () => {
    const groups = memoryMesh(systemEnv as never, 2)
    await Promise.all(groups.map((group) => dist.monitoredBarrier({ group, timeoutMs: 5000 })))
    for (const group of groups) group.destroy()
  })
})
