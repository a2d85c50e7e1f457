import { describe, expect, test } from 'vitest'
import type { CollectiveGroup } from '../../../src/peer/group/collective-group.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { sessionDefaults } from '../../../src/peer/session/session-config.ts'
import { type PeerError, RunError } from '../../../src/util/errors.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { ifMember } from '../../support/members.ts'
import { memoryMesh } from '../../support/memory-mesh.ts'
import { memoryRing, outcomes } from '../../support/memory-ring.ts'

const open = (size: number, seed = 1) => {
  const env = new VirtualEnv(seed)
  const groups = memoryMesh(env, size, () => ({
    delayMs: () => env.chance() * 9,
    maxMessageBytes: 1024,
  }))
  return { env, groups }
}

const makeGroups = (env: VirtualEnv, groups: readonly ProcessGroup[], ranks: readonly number[]) =>
  env.until(Promise.all(groups.map(async (group) => ifMember(await group.newGroup(ranks)))))

describe('groups of some ranks', () => {
  test('two groups and all ranks together, at once, do not mix', async () => {
    const { env, groups } = open(5)
    const odd = await makeGroups(env, groups, [3, 1])
    const even = await makeGroups(env, groups, [0, 2, 4])
    expect(odd.map((group) => group?.rank)).toEqual([undefined, 0, undefined, 1, undefined])
    expect(even.map((group) => group?.rank)).toEqual([0, undefined, 1, undefined, 2])
    const sums = await env.until(
      Promise.all(
        groups.map(async (world, rank) => {
          const part = (odd[rank] ?? even[rank])!
          const own = new Float32Array(3000).fill(rank + 1)
          const all = own.slice()
          await Promise.all([part.allReduce(own), world.allReduce(all)])
          return [own[0], own[2999], all[0], part.size]
        }),
      ),
    )
    expect(sums).toEqual([0, 1, 2, 3, 4].map((rank) => (rank % 2 ? [6, 6, 15, 2] : [9, 9, 15, 3])))
  })

  test('roots are ranks of the group; its failure ends it alone', async () => {
    const { env, groups } = open(4)
    const parts = await makeGroups(env, groups, [1, 3])
    const buffers = [1, 3].map((rank) => Int32Array.of(rank))
    await env.until(Promise.all([1, 3].map((rank, at) => parts[rank]!.broadcast(buffers[at]!, 1))))
    expect(buffers.map((buffer) => buffer[0])).toEqual([3, 3])
    const errors = await env.until(
      outcomes([
        parts[1]!.allReduce(new Float32Array(4)),
        parts[3]!.allReduce(new Float32Array(5)),
      ]),
    )
    await env.until(Promise.all(groups.map((group) => group.barrier())))
    errors.push(...(await outcomes([parts[1]!.barrier(), parts[3]!.barrier()])))
    for (const error of errors)
      expect(error?.message).toMatch(
        /allReduce #\d of group 1.*ranks disagree: rank [13] runs allReduce of [45] .*rank [13] runs/,
      )
  })

  test('newGroup rejects when ranks make different groups', async () => {
    const { env, groups } = open(3)
    const errors = await env.until(
      outcomes(groups.map((group, rank) => group.newGroup(rank === 2 ? [0, 1] : [0, 2]))),
    )
    expect(errors.map((error) => (error as PeerError).code)).toEqual([
      'peer.mismatch',
      'peer.mismatch',
      'peer.mismatch',
    ])
    expect(errors[0]?.message).toMatch(
      /ranks disagree: rank 0 creates a group of \[0, 2\], rank 2 one of \[0, 1\]/,
    )
    await expect(groups[0]!.newGroup([0, 0])).rejects.toThrow(/distinct ranks from 0 to 2/)
    await expect(groups[0]!.newGroup(2 as never)).rejects.toThrow(
      /newGroup: ranks must be an array, or omitted for all ranks, got the number 2/,
    )
  })

  test.each(['{}', 'null', '5', '{"ranks":[0,1],"links":{}}', '{"ranks":["0"],"links":[1]}'])(
    'a rank that says %s of the group is named',
    async (record) => {
      const { env, groups } = open(2)
      const bytes = new TextEncoder().encode(record)
      const [, error] = await env.until(
        outcomes([
          groups[0]!.allGatherBytes(bytes, { label: 'newGroup' }),
          groups[1]!.newGroup([0, 1]),
        ]),
      )
      expect(error).toMatchObject({ code: 'peer.protocol' })
      expect(error?.message).toMatch(
        /^newGroup: rank 0 sent \d+ bytes that are not what newGroup gathers/,
      )
    },
  )

  test('newGroup has all ranks by default', async () => {
    const { env, groups } = open(3)
    const all = await env.until(Promise.all(groups.map((group) => group.newGroup())))
    expect(all.map((group) => ifMember(group)?.ranks)).toEqual([0, 1, 2].map(() => [0, 1, 2]))
  })

  test('newGroup in a ring takes neighbours, and rejects on all ranks for others', async () => {
    const env = new VirtualEnv(2)
    const { groups } = memoryRing(env, 5)
    const pair = await makeGroups(env, groups, [2, 3])
    const sums = [2, 3].map((rank) => Float32Array.of(rank))
    await env.until(Promise.all([2, 3].map((rank, at) => pair[rank]!.allReduce(sums[at]!))))
    expect(sums.map((sum) => sum[0])).toEqual([5, 5])
    const errors = await env.until(outcomes(groups.map((group) => group.newGroup([0, 2]))))
    for (const error of errors)
      expect(error?.message).toMatch(/rank 0 of \[0, 2\] has no link to the next of them/)
  })
})

describe('a group that fails', () => {
  const isUntouched = (groups: readonly ProcessGroup[]) => {
    expect(groups.map((group) => group.error)).toEqual(groups.map(() => undefined))
    for (const { inFlight } of groups.map((group) => group.stats()))
      expect(inFlight).toMatchObject({ launched: 0, startedByPeers: 0, heldBytes: 0 })
  }

  test('frees the links of what was under way in it', async () => {
    const env = new VirtualEnv(1)
    const link = { delayMs: () => env.chance() * 9, maxMessageBytes: 1024 }
    const session = { windowBytes: { ...sessionDefaults.windowBytes, memory: 4096 } }
    const groups = memoryMesh(env, 3, () => link, { config: { session } })
    // Each round leaves half a window of bytes that nobody takes, or some beside a START that differs.
    for (let round = 0; round < 4; round++) {
      const isOdd = round % 2 === 1
      const [zero, one] = await makeGroups(env, groups, [0, 1])
      const pending = [zero!.allReduce(new Float32Array(2000))]
      await env.advance(30)
      if (isOdd) pending.push(one!.allReduce(new Float32Array(1900)))
      else one!.abort('enough')
      const [error] = await env.until(outcomes(pending))
      expect(error).toMatchObject({ code: isOdd ? 'peer.mismatch' : 'peer.aborted' })
      const sums = groups.map(() => new Float32Array(5000).fill(1))
      await env.until(Promise.all(groups.map((group, at) => group.allReduce(sums[at]!))))
      expect(sums.map((sum) => [sum[0], sum[4999]])).toEqual(groups.map(() => [3, 3]))
    }
    await env.advance(1000)
    for (const [group, peer] of [
      [groups[0]!, 1],
      [groups[1]!, 0],
    ] as const) {
      group.takeLinkPeaks(peer)
      expect(group.takeLinkPeaks(peer)).toMatchObject({ peakInFlightBytes: 0 })
    }
    isUntouched(groups)
  })

  test('lets later collectives run when its deadline has passed', async () => {
    const { env, groups } = open(3)
    const [zero, one] = await makeGroups(env, groups, [0, 1])
    const late = outcomes([zero!.barrier({ deadlineMs: 500 })])
    const behind = [groups[0]!.barrier({ deadlineMs: 600 }), groups[1]!.barrier()]
    env.after(900, () => void behind.push(groups[2]!.barrier()))
    const [error] = await env.until(late)
    expect(error).toMatchObject({ code: 'peer.timeout' })
    await env.advance(600)
    await Promise.all(behind)
    const [later] = await outcomes([one!.barrier()])
    expect(later?.message).toMatch(/^barrier #0 of group 1: rank 0 waited 500 ms for/)
    isUntouched(groups)
  })

  test('is reported to a rank that learns of the group later, through ranks outside it', async () => {
    const env = new VirtualEnv(2)
    const { groups } = memoryRing(env, 5)
    const made = groups.map(async (group) => ifMember(await group.newGroup([0, 4])))
    const first = await env.until(Promise.race([made[0]!, made[4]!]))
    first!.abort('enough')
    const parts = await env.until(Promise.all(made))
    const errors = await env.until(outcomes([parts[0]!.barrier(), parts[4]!.barrier()]))
    for (const error of errors) expect(error?.message).toMatch(/rank [04] aborted: enough/)
    await env.until(Promise.all(groups.map((group) => group.barrier())))
    isUntouched(groups)
  })

  test('ends all groups when a rank is lost', async () => {
    const { env, groups } = open(3)
    const [zero] = await makeGroups(env, groups, [0, 1])
    zero!.abort(new RunError('peer.lost', 'rank 1 lost its device', { ranks: [1] }))
    const errors = await env.until(outcomes(groups.map((group) => group.barrier())))
    expect(errors.map((error) => (error as PeerError).code)).toEqual(groups.map(() => 'peer.lost'))
  })
})

test('allGatherBytes calls onstarted once on each rank', async () => {
  const { env, groups } = open(3)
  let met = 0
  const onstarted = () => {
    met += 1
  }
  const all = groups.map((group) => group.allGatherBytes(new Uint8Array(5000), { onstarted }))
  await env.until(Promise.all(all))
  expect(met).toBe(3)
})

test('a length that a rank announces and that none can hold ends the epoch, and names the rank', async () => {
  const { env, groups } = open(3)
  const { allGatherU32 } = groups[1]!
  groups[1]!.allGatherU32 = (_, options) =>
    allGatherU32.call(groups[1]!, Uint32Array.of(2 ** 32 - 1), options)
  const errors = await env.until(
    outcomes(groups.map((group) => group.allGatherBytes(new Uint8Array(8)))),
  )
  for (const error of errors) {
    expect((error as PeerError).code).toBe('peer.protocol')
    expect(error?.message).toMatch(
      /each rank may send at most 357913941 bytes, but rank 1 announced 4294967295/,
    )
  }
  expect(groups.every(({ error }) => error?.code === 'peer.protocol')).toBe(true)
})

describe('messages between two', () => {
  const both = (group: CollectiveGroup, peer: number, length: number, tag?: number) => {
    const sent = Float32Array.from({ length }, (_, i) => group.rank * 1000 + i + (tag ?? 0))
    const got = new Float32Array(length)
    const options = tag === undefined ? {} : { tag }
    return Promise.all([group.send(sent, peer, options), group.recv(got, peer, options)]).then(
      () => got,
    )
  }

  test('both ways at once, in the order sent, whatever else runs', async () => {
    const { env, groups } = open(3)
    const [first, second] = groups as [ProcessGroup, ProcessGroup, ProcessGroup]
    const barrier = Promise.all(groups.map((group) => group.barrier()))
    const runs = [5, 2000, 0, 1].flatMap((length) => [
      both(first, 1, length),
      both(second, 0, length),
    ])
    const got = await env.until(Promise.all(runs))
    await env.until(barrier)
    got.forEach((values, at) => {
      expect(values.length).toBe([5, 2000, 0, 1][at >> 1])
      if (values.length > 0) expect(values[0]).toBe(at % 2 ? 0 : 1000)
      if (values.length > 1) expect(values.at(-1)! % 1000).toBe((values.length - 1) % 1000)
    })
  })

  test('messages with other tags arrive out of order', async () => {
    const { env, groups } = open(2)
    const got = [new Int32Array(1), new Int32Array(1)]
    await env.until(
      Promise.all([
        groups[0]!.send(Int32Array.of(1), 1, { tag: 1 }),
        groups[0]!.send(Int32Array.of(2), 1, { tag: 2 }),
        groups[1]!.recv(got[0]!, 0, { tag: 2 }),
        groups[1]!.recv(got[1]!, 0, { tag: 1 }),
      ]),
    )
    expect(got.map((one) => one[0])).toEqual([2, 1])
  })

  test('a different length or type, an invalid rank and a missing link are refused', async () => {
    for (const buffer of [new Float32Array(3), new Int32Array(4)]) {
      const { env, groups } = open(2)
      const errors = await env.until(
        outcomes([groups[0]!.send(new Float32Array(4), 1), groups[1]!.recv(buffer, 0)]),
      )
      for (const error of errors)
        expect(error?.message).toMatch(
          /send #0 bucket 0.*rank [01] runs a message from rank 0 of [34] elements of \w+ \(direct\), rank [01]/,
        )
    }
    const { groups } = open(2)
    await expect(groups[0]!.send(new Float32Array(1), 0)).rejects.toThrow(
      /a rank from 0 to 1 other than this one, 0, got 0/,
    )
    const { groups: ring } = memoryRing(new VirtualEnv(1), 5)
    await expect(ring[0]!.send(new Float32Array(1), 2)).rejects.toThrow(
      /this rank has no link to rank 2/,
    )
  })

  test('a receive that no rank sends to times out, and names the sender', async () => {
    const { env, groups } = open(3)
    const [error] = await env.until(
      outcomes([groups[0]!.recv(new Float32Array(1), 2, { deadlineMs: 500 })]),
      2000,
    )
    expect(error?.message).toMatch(
      /send #0 bucket 0: rank 0 waited 500 ms for chunk 0 from rank 2; .*not started/,
    )
  })
})

describe('a group that is retired', () => {
  test('refuses calls at once, ends when what it has under way has ended, and lets the others live', async () => {
    const { env, groups } = open(3)
    const parts = await makeGroups(env, groups, [0, 2])
    const others = await makeGroups(env, groups, [0, 2])
    const [first, last] = [parts[0]!, parts[2]!]
    const sums = [Float32Array.of(1), Float32Array.of(2)]
    const sum = first.allReduce(sums[0]!)
    let isRetired = false
    const retiring = first.retire().then(() => {
      isRetired = true
    })
    const gone =
      /^(allReduce|barrier|send|receive): the process group of ranks \[0, 2\] has been destroyed/
    const refused = [
      first.allReduce(new Float32Array(1)),
      first.barrier(),
      first.send(new Float32Array(1), 1),
      first.recv(new Float32Array(1), 1),
    ]
    for (const call of refused) {
      await expect(call).rejects.toMatchObject({
        code: 'graph.misuse',
        message: expect.stringMatching(gone),
      })
    }
    expect(() => first.takeSequence()).toThrow(/^takeSequence: the process group of ranks \[0, 2\]/)
    // The other rank has not begun the sum yet, whatever else the ranks do.
    await env.until(Promise.all(groups.map((group) => group.barrier())))
    expect(isRetired).toBe(false)
    await env.until(Promise.all([sum, last.allReduce(sums[1]!), retiring]))
    expect(sums.map((one) => one[0])).toEqual([3, 3])

    await env.until(last.retire())
    const again = [Float32Array.of(1), Float32Array.of(5)]
    await env.until(Promise.all([others[0]!.allReduce(again[0]!), others[2]!.allReduce(again[1]!)]))
    expect(again.map((one) => one[0])).toEqual([6, 6])
    await env.until(Promise.all(groups.map((group) => group.barrier())))
    expect(groups.map((group) => group.error)).toEqual([undefined, undefined, undefined])
    expect(groups[0]!.stats().inFlight).toMatchObject({
      launched: 0,
      startedByPeers: 0,
      heldBytes: 0,
    })
  })

  test('ends with an epoch that fails', async () => {
    const { env, groups } = open(2)
    const parts = await makeGroups(env, groups, [0, 1])
    const sum = parts[0]!.allReduce(new Float32Array(1))
    const retiring = parts[0]!.retire()
    groups[1]!.abort('enough')
    await env.until(retiring)
    await expect(sum).rejects.toMatchObject({ code: 'peer.aborted' })
  })

  test('all groups of an epoch are retired once it is left', async () => {
    const { env, groups } = open(2)
    const parts = await makeGroups(env, groups, [0, 1])
    expect(parts.map((part) => part!.isDestroyed)).toEqual([false, false])
    await env.until(Promise.all(groups.map((group) => group.leave())))
    expect(parts.map((part) => part!.isDestroyed)).toEqual([true, true])
  })
})
