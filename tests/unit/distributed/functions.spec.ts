import { afterEach, describe, expect, test, vi } from 'vitest'
import { DistributedDataParallel } from '../../../src/ddp/data-parallel/data-parallel.ts'
import * as dist from '../../../src/entries/distributed.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { Float16Bits } from '../../../src/peer/collective/float16-bits.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { systemEnv } from '../../../src/util/env.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { ifMember } from '../../support/members.ts'
import { memoryMesh } from '../../support/memory-mesh.ts'
import { memoryRing, outcomes } from '../../support/memory-ring.ts'

// The functions with a group each: many ranks in one context have no default group.

const open = (size: number) => {
  const env = new VirtualEnv(size)
  const groups = memoryMesh(env, size, () => ({ delayMs: () => env.chance() * 5 }))
  const all = <T>(call: (group: ProcessGroup, rank: number) => Promise<T>) =>
    env.until(Promise.all(groups.map(call)))
  return { env, groups, all }
}

afterEach(async () => {
  vi.restoreAllMocks()
  await dist.destroyProcessGroup()
})

describe('tensors', () => {
  test('sums of arrays and of parameters', async () => {
    const { all } = open(3)
    const got = await all(async (group, rank) => {
      const array = Int32Array.of(rank, 10 * rank)
      const parameter = new Parameter([2], Float32Array.of(rank + 1, 4))
      await dist.allReduce(array, { group })
      await dist.allReduce(parameter, { group, op: dist.ReduceOp.AVG })
      const min = Float32Array.of(rank - 1)
      await dist.reduce(min, 1, { group, op: dist.ReduceOp.MIN })
      return [...array, ...(await parameter.read()), rank === 1 ? min[0] : 'undefined']
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
    expect(works.map((work) => [work.isSuccess(), work.exception()])).toEqual([
      [true, undefined],
      [true, undefined],
    ])
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
    const failed = new dist.Work(Promise.reject(new Error('gone')))
    await expect(failed.getFuture()).rejects.toThrow('gone')
    expect([failed.isCompleted(), failed.isSuccess()]).toEqual([true, false])
    expect(failed.exception()).toEqual(new Error('gone'))
  })

  test('of one tensor: reduceScatterTensor, allGatherIntoTensor, allToAllSingle, of parameters too', async () => {
    const { all } = open(3)
    const got = await all(async (group, rank) => {
      const input = Int32Array.from({ length: 6 }, (_, i) => i * (rank + 1))
      const output = new Int32Array(2)
      await dist.reduceScatterTensor(output, input, { group })
      const max = new Int32Array(2)
      await dist.reduceScatterTensor(max, input, { group, op: dist.ReduceOp.MAX })
      // Rows of two travel whole: rank r keeps one and sends the others r + 1 and r + 2.
      const rows = [1, 2, 3].map((_, to) => ((to - rank + 3) % 3) + 1)
      const taken = [0, 1, 2].map((from) => ((rank - from + 3) % 3) + 1)
      const sent = new Parameter(
        [6, 2],
        Float32Array.from({ length: 12 }, (_, i) => 100 * rank + i),
      )
      const got = new Parameter([6, 2], new Float32Array(12))
      await dist.allToAllSingle(got, sent, taken, rows, { group })
      return [[...output], [...max], [...input], [...(await got.read())]]
    })
    const firstRow = (from: number, to: number) => {
      let at = 0
      for (let other = 0; other < to; other++) at += ((other - from + 3) % 3) + 1
      return at
    }
    got.forEach(([output, max, input, turned], rank) => {
      expect(output).toEqual([12 * rank, 6 * (2 * rank + 1)])
      expect(max).toEqual([6 * rank, 3 * (2 * rank + 1)])
      expect(input).toEqual([0, 1, 2, 3, 4, 5].map((i) => i * (rank + 1)))
      const expected = [0, 1, 2].flatMap((from) => {
        const count = 2 * (((rank - from + 3) % 3) + 1)
        return Array.from({ length: count }, (_, i) => 100 * from + 2 * firstRow(from, rank) + i)
      })
      expect(turned).toEqual(expected)
    })
  })

  test('ranks count among all; a rank outside of a group does nothing, with one warning', async () => {
    const warn = vi.spyOn(console, 'warn').mockImplementation(() => undefined)
    const { all } = open(4)
    const got = await all(async (world, rank) => {
      const group = await world.newGroup([3, 1])
      const array = Float32Array.of(rank)
      await dist.broadcast(array, 3, { group })
      await dist.broadcast(array, 3, { group, asyncOp: true }).wait()
      await dist.monitoredBarrier({ group })
      await dist.barrier({ group: world })
      const list = [rank]
      await dist.broadcastObjectList(list, 3, { group })
      return [
        array[0],
        await dist.gatherObject(rank, rank === 3 ? [0, 0] : undefined, 3, { group }),
        await dist.allGatherObject([-1, -1], rank, { group }),
        list[0],
        await dist.scatterObjectList([-1], rank === 3 ? [7, 8] : undefined, 3, { group }),
      ]
    })
    expect(got).toEqual([
      [0, undefined, [-1, -1], 0, undefined],
      [3, undefined, [1, 3], 3, 7],
      [2, undefined, [-1, -1], 2, undefined],
      [3, [1, 3], [1, 3], 3, 8],
    ])
    const received = warn.mock.calls.map(([text]) => String(text))
    for (const name of ['broadcast', 'monitoredBarrier', 'gatherObject'])
      expect(
        received.filter((text) => text.startsWith(`tabring: ${name} does nothing on rank`)),
      ).toHaveLength(1)
    expect(() => dist.getBackend(dist.GroupMember.NON_GROUP_MEMBER)).toThrow(
      /this rank is not in the group/,
    )
  })

  test('ranks in a group and among all', async () => {
    const { all } = open(4)
    await all(async (world) => {
      const group = await world.newGroup([3, 1])
      if (group === dist.GroupMember.NON_GROUP_MEMBER) return
      expect(dist.getProcessGroupRanks(group)).toEqual([1, 3])
      expect([dist.getGroupRank(group, 3), dist.getGlobalRank(group, 0)]).toEqual([1, 1])
      expect(() => dist.getGroupRank(group, 0)).toThrow(/of the group \[1, 3\], got 0/)
      expect(() => dist.getGlobalRank(group, 2)).toThrow(/from 0 to 1, got 2/)
    })
  })

  test('float16 by its bits: a Uint16Array that is said to be', async () => {
    const { all } = open(3)
    const got = await all(async (group, rank) => {
      const bits = Float16Bits.encode([0.5 + rank, 2048, -60_000])
      const same = new Float16Bits(Uint16Array.from(bits).buffer)
      await dist.allReduce(bits, { group })
      const list = Array.from({ length: 3 }, () => new Float16Bits(3))
      await dist.allGather(list, same, { group })
      return [bits.decode(), ...list.map((one) => one.decode())].map((one) => [...one])
    })
    const drawn = [0, 1, 2].map((rank) => [0.5 + rank, 2048, -60_000])
    for (const own of got) {
      expect(own[0]).toEqual([4.5, 6144, Number.NEGATIVE_INFINITY])
      expect(own.slice(1)).toEqual(drawn)
    }
  })

  test('wrong arguments are named', async () => {
    const { groups } = open(2)
    const [group] = groups
    const array = Float32Array.of(1)
    await expect(dist.broadcast(array, 5, { group })).rejects.toThrow(
      /broadcast: src must be a rank of the group \[0, 1\], got 5/,
    )
    expect(() => dist.allReduce(array, { group, operation: 'sum' } as never)).toThrow(
      /allReduce: expected options among group, asyncOp, op, got "operation"/,
    )
    expect(() => dist.allReduce(array, { group, op: 'SUM' as never })).toThrow(/op must be one of/)
    await expect(dist.allReduce(Int32Array.of(1), { group, op: 'avg' })).rejects.toThrow(
      /op "avg" needs float32 or float16, got int32/,
    )
    await expect(dist.allReduce(new Float64Array(1) as never, { group })).rejects.toThrow(
      expect.objectContaining({
        code: 'config.invalid',
        message: expect.stringMatching(
          /^allReduce: tensor must be a Float32Array, .*got Float64Array of 1\. Copy it into one/,
        ),
      }),
    )
    await expect(group!.allReduce(new Float64Array(1) as never)).rejects.toThrow(
      /^allReduce: array must be a Float32Array, .*got Float64Array of 1/,
    )
    // [3000, 40000] read as halves would sum up to [4024, 41024] on two ranks.
    const words = Uint16Array.of(3000, 40000)
    const said =
      /: \w+ must be a Float32Array, Float16Array, .* got Uint16Array of \d, which could hold whole numbers or float16 bits\. Pass whole numbers as Int32Array\.from\(array\), float16 bits as new Float16Bits\(/
    await expect(dist.allReduce(words as never, { group })).rejects.toThrow(said)
    await expect(dist.broadcast(words as never, 0, { group })).rejects.toThrow(said)
    await expect(group!.allReduce(words as never)).rejects.toThrow(said)
    await expect(group!.allGatherConcat(words as never)).rejects.toThrow(said)
    await expect(group!.send(words as never, 1)).rejects.toThrow(said)
    expect([...words]).toEqual([3000, 40000])
    await expect(dist.allReduce([1] as never, { group })).rejects.toThrow(
      /allReduce: tensor must be a typed array, a parameter or a buffer, got a plain array of 1/,
    )
    await expect(dist.allReduce(array)).rejects.toThrow(
      /^allReduce: there is no default process group\. Call initProcessGroup\(\) first/,
    )
    // Options in the place of the rank name no group, so that the one of all ranks would be asked for.
    await expect(dist.broadcast(array, { group } as never)).rejects.toThrow(
      /^broadcast: src must be a number, got .* comes before the options/,
    )
    await expect(dist.gatherObject(1, null, { group } as never)).rejects.toThrow(
      /^gatherObject: dst must be a number/,
    )
    await expect(dist.send(array, { group } as never)).rejects.toThrow(
      /^send: dst must be a number/,
    )
    await expect(dist.allReduce(array, { group: [0, 1] as never })).rejects.toThrow(
      /allReduce: expected a group, .* got a plain array of 2/,
    )
  })

  test('lists and tensors are checked before anything is sent', async () => {
    const { groups } = open(3)
    const [group] = groups
    const given = { group }
    const two = () => new Float32Array(2)
    const three = [two(), two(), two()]
    const long = [two(), new Float32Array(5), two()]
    const bytes = [two(), two(), new Uint8Array(2)]
    const refused: [Promise<unknown>, RegExp][] = [
      [dist.allGather([two()], two(), given), /tensorList to have 3 entries, .* got 1\./],
      [
        dist.allGather(two() as never, two(), given),
        /tensorList must be an array, got Float32Array/,
      ],
      [
        dist.allGather(long, two(), given),
        /allGather: expected tensorList\[1\] to have 2 elements of float32, got 5 of float32/,
      ],
      [dist.allGather(bytes, two(), given), /tensorList\[2\] to have 2 .*got 2 of uint8/],
      [
        dist.allGatherIntoTensor(new Float32Array(7), two(), given),
        /output to have 6 elements of float32, got 7/,
      ],
      [
        dist.allGatherIntoTensor(new Int32Array(6), two(), given),
        /output to have 6 elements of float32, got 6 of int32/,
      ],
      [
        dist.reduceScatter(new Float32Array(4), three, given),
        /inputList\[0\] to have 4 .* got 2 of/,
      ],
      [
        dist.reduceScatter(new Int32Array(2), three, given),
        /inputList\[0\] to have 2 .*of int32, got/,
      ],
      [dist.reduceScatter(two(), long, given), /inputList\[1\] to have 2 elements/],
      [dist.reduceScatterTensor(two(), new Float32Array(7), given), /input to have 6 .* got 7/],
      [dist.gather(two(), long, 0, given), /gather: expected gatherList\[1\] to have 2/],
      [
        dist.gather(two(), undefined, 0, given),
        /only rank 0 must pass gatherList, got none on rank 0/,
      ],
      [dist.gather(two(), three, 1, given), /only rank 1 must pass gatherList, got one on rank 0/],
      [dist.scatter(two(), three.slice(1), 0, given), /scatterList to have 3 entries/],
      [dist.scatter(new Float32Array(3), three, 0, given), /scatterList\[0\] to have 3 elements/],
      [
        dist.scatter(two(), three, 2, given),
        /only rank 2 must pass scatterList, got one on rank 0/,
      ],
      [dist.allToAll(three.slice(1), three, given), /outputTensorList to have 3 entries, .*got 2/],
      [dist.allToAll(three, long, given), /inputTensorList\[1\] to have 2 elements/],
      [dist.allToAll(long, three, given), /outputTensorList\[1\] to have 2 elements/],
      [
        dist.allToAllSingle(new Float32Array(4), new Float32Array(4), null, null, given),
        /length of input's first axis must be divisible by the 3 ranks, got 4. Pass inputSplitSizes/,
      ],
      [
        dist.allToAllSingle(two(), two(), null, [1, 2, -1], given),
        /inputSplitSizes must be whole numbers that add up to 2, the length of input's first axis, got \[1, 2, -1\]/,
      ],
      [dist.allToAllSingle(two(), two(), [1, 1], [1, 1, 0], given), /outputSplitSizes to have 3/],
      [dist.send(two(), 1, { group, tag: 0.5 }), /tag must be .*65000, got 0.5/],
      [dist.send(two(), 1, { group, tag: 65_533 }), /tag must be .*65000, got 65533/],
      [dist.allGatherObject([0], 1, given), /objectList to have 3 entries/],
      [dist.allGatherObject({ a: 1 } as never, 1, given), /objectList must be an array/],
      [dist.allGatherObject([0, 0, 0], 1, group as never), /Write \{ group \}/],
      [dist.gatherObject(1, null, 0, given), /only rank 0 must pass objectGatherList, got none/],
      [
        dist.gatherObject(1, [0, 0, 0], 1, given),
        /only rank 1 must pass objectGatherList, got one/,
      ],
      [dist.scatterObjectList([], [1, 2, 3], 0, given), /a place for this rank's object/],
      [dist.scatterObjectList([0], undefined, 0, given), /inputList to have 3 entries/],
      [dist.broadcastObjectList(5 as never, 0, given), /objectList must be an array/],
    ]
    for (const [call, text] of refused) await expect(call).rejects.toThrow(text)
    expect(() => new dist.P2POp(dist.send as never, two(), 1, given)).toThrow(/isend or irecv/)
    expect(() => dist.batchIsendIrecv([])).toThrow(/messages of one group, got no message/)
    expect(() => dist.batchIsendIrecv([{}] as never)).toThrow(/an array of P2POps/)
    const op = (of: ProcessGroup) => new dist.P2POp(dist.isend, two(), 1, { group: of })
    expect(() => dist.batchIsendIrecv([op(groups[0]!), op(groups[1]!)])).toThrow(
      /got messages of 2/,
    )
    expect(group!.stats().payloadBytesSent).toBe(0)
  })

  test('unequal split sizes are reported by both ranks, on all', async () => {
    const { env, groups } = open(3)
    const calls = groups.map((group, rank) =>
      dist.allToAllSingle(new Float32Array(rank === 1 ? 6 : 3), new Float32Array(3), null, null, {
        group,
      }),
    )
    for (const error of await env.until(outcomes(calls)))
      expect(error?.message).toMatch(
        /allToAllSingle: rank 1 expected 2 elements from rank 0, got 1\. Make outputSplitSizes match/,
      )
  })

  test('split sizes that ranks disagree about are reported by both, on all', async () => {
    const { env, groups } = open(2)
    const calls = groups.map((group, rank) =>
      dist.allToAllSingle(
        new Float32Array(rank === 0 ? 3 : 2),
        new Float32Array(2),
        rank === 0 ? [1, 2] : [1, 1],
        [1, 1],
        { group },
      ),
    )
    for (const error of await env.until(outcomes(calls)))
      expect(error?.message).toMatch(
        /allToAllSingle: rank 0 expected 2 elements from rank 1, got 1/,
      )
  })

  test('an operation that ReduceOp does not have is no sum', async () => {
    const { groups } = open(2)
    const [group] = groups
    const { BXOR } = dist.ReduceOp as unknown as Record<string, never>
    const x = Float32Array.of(3)
    const calls = [
      () => dist.allReduce(x, { group, op: BXOR }),
      () => dist.reduce(x, 0, { group, op: BXOR }),
      () => dist.reduceScatter(x, [x, x], { group, op: BXOR }),
      () => dist.reduceScatterTensor(x, Float32Array.of(1, 2), { group, op: BXOR }),
    ]
    for (const call of calls)
      await expect(async () => call()).rejects.toThrow(/one of ReduceOp\.SUM, .* got undefined/)
    await expect(async () => dist.allReduce(x, dist.ReduceOp.SUM as never)).rejects.toThrow(
      /Write \{ op: "sum" \}/,
    )
    await expect(async () => dist.allReduce(x, { async_op: true } as never)).rejects.toThrow(
      /Write asyncOp/,
    )
  })

  test('undefined and null are the default group, in every call', async () => {
    expect(dist.GroupMember.WORLD).toBe(undefined)
    await dist.initProcessGroup({ rank: 0, worldSize: 1, links: new Map() })
    const array = Float32Array.of(4)
    for (const group of [undefined, null as never]) {
      const given = { group }
      await dist.allReduce(array, given)
      const out = Float32Array.of(0)
      await dist.allGatherIntoTensor(out, array, given)
      expect(out[0]).toBe(4)
      expect(await dist.allGatherObject([0], 7, given)).toEqual([7])
      expect(await dist.scatterObjectList([0], [8], 0, given)).toBe(8)
      await dist.monitoredBarrier(given)
      expect([dist.getRank(group), dist.getWorldSize(group)]).toEqual([0, 1])
    }
    expect(dist.GroupMember.WORLD).toBe(dist.getProcessGroup())
    const all = await dist.newGroup()
    expect([dist.getWorldSize(all), dist.getBackend(), dist.getBackend(all)]).toEqual([
      1,
      'links',
      'links',
    ])
    await dist.destroyProcessGroup(dist.GroupMember.NON_GROUP_MEMBER)
    await dist.destroyProcessGroup(all)
    expect(dist.isInitialized()).toBe(true)
    await dist.destroyProcessGroup(dist.getProcessGroup())
    expect(dist.isInitialized()).toBe(false)
  })

  test('with the default group all groups of it are destroyed', async () => {
    await dist.initProcessGroup({ rank: 0, worldSize: 1, links: new Map() })
    const [first, second] = [ifMember(await dist.newGroup())!, ifMember(await dist.newGroup())!]
    await dist.destroyProcessGroup(first)
    await dist.allReduce(Float32Array.of(1), { group: second })
    expect(dist.getBackend(second)).toBe('links')
    await dist.destroyProcessGroup()
    const gone = /the process group of ranks \[0\] has been destroyed/
    for (const group of [first, second]) {
      await expect(dist.allReduce(Float32Array.of(1), { group })).rejects.toThrow(gone)
      await expect(dist.destroyProcessGroup(group)).rejects.toThrow(gone)
      for (const ask of [
        () => dist.getRank(group),
        () => dist.getWorldSize(group),
        () => dist.getBackend(group),
        () => dist.getProcessGroupRanks(group),
        () => dist.getGroupRank(group, 0),
        () => dist.getGlobalRank(group, 0),
        () => new DistributedDataParallel(new Linear(1, 1), { processGroup: group }),
      ])
        expect(ask).toThrow(gone)
    }
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
  test('of a length that a rank makes up are refused, naming it, on all ranks', async () => {
    const lie = 2 ** 32 - 1
    for (const call of ['broadcastObjectList', 'scatterObjectList'] as const) {
      const { env, groups } = open(3)
      const { broadcast } = groups[2]!
      groups[2]!.broadcast = (array, ...rest) => {
        if (array instanceof Uint32Array) array.fill(lie)
        return broadcast.call(groups[2]!, array, ...rest)
      }
      const calls = groups.map((group) =>
        call === 'broadcastObjectList'
          ? dist.broadcastObjectList([1], 2, { group })
          : dist.scatterObjectList([1], [1, 2, 3], 2, { group }),
      )
      const errors = await env.until(outcomes(calls))
      for (const error of errors) expect(error?.message).toMatch(/rank 2 announced 4294967295/)
      expect(groups.map((group) => group.error?.code)).toEqual(
        Array.from(groups, () => 'peer.protocol'),
      )
    }
  })

  test('that are no list where one is to come are refused, naming the rank', async () => {
    const { env, groups } = open(2)
    const { broadcast } = groups[1]!
    groups[1]!.broadcast = (array, ...rest) => {
      // In the place of [[1],2]: the text of null, as devalue writes it.
      if (array instanceof Uint8Array) array.set(new TextEncoder().encode('[null] '))
      return broadcast.call(groups[1]!, array, ...rest)
    }
    const calls = groups.map((group) => dist.broadcastObjectList([2], 1, { group }))
    const [error] = await env.until(outcomes(calls))
    expect(error?.message).toMatch(/^broadcastObjectList: rank 1 sent null in place of its list/)
  })

  const objects = [
    { name: 'a', when: new Date(5) },
    new Map([['k', new Set([1n])]]),
    [undefined, Float32Array.of(1.5), 'ä'],
  ]

  test('allGatherObject, gatherObject, broadcastObjectList, scatterObjectList', async () => {
    const { all } = open(3)
    const got = await all(async (group, rank) => {
      const everyones = [0, 0, 0].map((): unknown => 0)
      await dist.allGatherObject(everyones, objects[rank], { group })
      const places = rank === 1 ? [0, 0, 0].map((): unknown => 0) : undefined
      const atOne = await dist.gatherObject(objects[rank], places, 1, { group })
      const list: unknown[] = rank === 2 ? [...objects] : [0, 0, 0]
      await dist.broadcastObjectList(list, 2, { group })
      const given: unknown[] | undefined = rank === 0 ? objects : undefined
      const own = await dist.scatterObjectList([undefined], given, 0, { group })
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
    const unsendable: unknown = { run: () => 1 }
    await expect(dist.allGatherObject([0, 0], unsendable, { group: groups[0]! })).rejects.toThrow(
      /allGatherObject: object must be plain objects, .*got something that cannot be sent/,
    )
    expect(groups[0]!.stats().payloadBytesSent).toBe(0)
  })
})

describe('in a ring', () => {
  test('calls that need links between all fail on all ranks at once, and say how to get the links', async () => {
    const env = new VirtualEnv(5)
    const { groups } = memoryRing(env, 5)
    const errors = await env.until(
      outcomes([
        ...groups.map((group) => dist.monitoredBarrier({ group, env, timeoutMs: 900 })),
        dist.send(Float32Array.of(1), 2, { group: groups[0]! }),
        groups[0]!.send(Float32Array.of(1), 3),
        ...groups.map((group) => group.newGroup([0, 1, 3])),
      ]),
    )
    expect(errors).toHaveLength(12)
    for (const error of errors) expect(error?.message).toContain("topology: 'mesh'")
    // The group stays usable.
    const sums = groups.map((_, rank) => Float32Array.of(rank))
    await env.until(Promise.all(groups.map((group, at) => group.allReduce(sums[at]!))))
    expect(sums.map((sum) => sum[0])).toEqual([10, 10, 10, 10, 10])
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
    [false, /monitoredBarrier: rank 1 did not arrive within 700 ms/],
    [true, /monitoredBarrier: ranks 1, 3 did not arrive within 700 ms/],
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

  test("monitoredBarrier's messages do not collide with a caller's of any tag", async () => {
    const { env, groups } = open(2)
    const got = new Uint8Array(1)
    const calls = groups.map(async (group, rank) => {
      const given = { group, tag: 65_000 }
      const [work] =
        rank === 0 ? [dist.irecv(got, 1, given)] : [dist.isend(Uint8Array.of(9), 0, given)]
      await dist.monitoredBarrier({ group, env, timeoutMs: 900 })
      await work!.wait()
    })
    await env.until(Promise.all(calls))
    expect(got[0]).toBe(9)
    await expect(groups[0]!.send(got, 1, { tag: 65_533 })).rejects.toThrow(
      /tag must be a whole number from 0 to 65000/,
    )
  })

  test('by the clock of the system', async () => {
    const groups = memoryMesh(systemEnv as never, 2)
    await Promise.all(groups.map((group) => dist.monitoredBarrier({ group, timeoutMs: 5000 })))
    for (const group of groups) group.destroy()
  })
})

test.each<[string, () => unknown]>([
  ['input', () => dist.allGatherIntoTensor(Float32Array.of(1), null as never)],
  ['output', () => dist.reduceScatterTensor(null as never, Float32Array.of(1))],
  ['inputTensorList[0]', () => dist.allToAll([Float32Array.of(1)], [null as never])],
  ['dst', () => dist.reduce(Float32Array.of(1), '0' as never)],
  ['src', () => dist.recv(Float32Array.of(1), '0' as never)],
])('a refusal names the argument: %s', async (name, call) => {
  await dist.initProcessGroup({ rank: 0, worldSize: 1, links: new Map() })
  await expect(call()).rejects.toThrow(`: ${name} must be a `)
})
