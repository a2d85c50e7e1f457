import { expect, test } from 'vitest'
import { ProcessGroup } from '../../../src/peer/group/group.ts'
import { Rejoining } from '../../../src/peer/group/rejoin.ts'
import { EpochLinks, followingEpoch, maxEarlyBytes } from '../../../src/peer/link/epoch-link.ts'
import type { Link } from '../../../src/peer/link/link.ts'
import { type MemoryLink, memoryPair } from '../../../src/peer/link/memory-link.ts'
import { fieldOffset, headerBytes } from '../../../src/peer/link/wire.ts'
import { PeerError } from '../../../src/util/errors.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { outcomes } from '../../support/memory-ring.ts'

// Groups of the same ranks that follow one another over the same links: what one leaves on the wire never reaches the next.

const epoch = 3

/** By rank: a place in a ring, and the groups it has joined. */
function ranksOf(env: VirtualEnv, size: number, transports: MemoryLink[] = []) {
  const links = Array.from({ length: size }, () => new Map<number, Link>())
  for (let rank = 0; rank < size; rank++) {
    const next = (rank + 1) % size
    const [a, b] = memoryPair(env, { delayMs: () => 3 })
    transports.push(a, b)
    links[rank]!.set(next, a)
    links[next]!.set(rank, b)
  }
  return links.map((own, rank) => {
    const groups: ProcessGroup[] = []
    const ring = new Rejoining({
      epoch,
      links: own,
      follows: ({ code }) => code === 'gpu.lost',
      join: async (at, links) => {
        groups.at(-1)?.destroy()
        const config = { deadlineMs: 60_000 }
        const group = new ProcessGroup({ rank, size, epoch: at, links, env, config })
        groups.push(group)
        await group.ready()
        return group
      },
    })
    return { ring, groups }
  })
}

test('ranks that need the next group at very different times exchange what they should, whatever was on its way', async () => {
  const size = 4
  const env = new VirtualEnv(5)
  const ranks = ranksOf(env, size)
  let groups = await env.until(Promise.all(ranks.map(({ ring }) => ring.first())))
  const length = 100_000
  for (let round = 0; round < 3; round++) {
    // Rank 3 never launches: the others' data fills the links, and stays there when rank 1 gives up.
    const stuck = groups
      .slice(0, 3)
      .map((group) => group.allReduce(new Float32Array(length).fill(7), { sequence: 1 }))
    const failed = outcomes(stuck)
    env.after(10, () => groups[1]!.abort(new PeerError('gpu.lost', 'rank 1 lost its device')))
    for (const error of await env.until(failed))
      expect(error).toMatchObject({
        code: 'gpu.lost',
        message: expect.stringContaining('rank 1 lost its device'),
      })
    // The last of them is busy for longer than a heartbeat may be missing.
    const joining = [0, 2, 3, 1].map(async (rank, i) => {
      await new Promise<void>((resolve) => env.after(i * 9000, resolve))
      const next = await ranks[rank]!.ring.after(groups[rank]!)
      const buffer = new Float32Array(length).fill(rank + round)
      await next.allReduce(buffer, { sequence: 1 })
      return { rank, next, buffer }
    })
    const joined = await env.until(Promise.all(joining))
    for (const { buffer, next } of joined) {
      expect(buffer.every((value) => value === 6 + size * round)).toBe(true)
      expect(next.error).toBeUndefined()
    }
    groups = joined.sort((a, b) => a.rank - b.rank).map(({ next }) => next)
  }
  for (const { groups: all } of ranks) expect(all).toHaveLength(4)
})

test('a loss in a group that some ranks have not asked for yet brings all of them to the one after', async () => {
  const size = 4
  const env = new VirtualEnv(8)
  const ranks = ranksOf(env, size)
  const first = await env.until(Promise.all(ranks.map(({ ring }) => ring.first())))
  first[0]!.abort(new PeerError('gpu.lost', 'rank 0 lost its device'))
  const second = await env.until(ranks[2]!.ring.after(first[2]!))
  second.abort(new PeerError('gpu.lost', 'rank 2 lost its device'))
  const third = await env.until(
    Promise.all(
      ranks.map(async ({ ring }, rank) => {
        await new Promise<void>((resolve) => env.after(100 * rank, resolve))
        return ring.after(await ring.after(first[rank]!))
      }),
    ),
  )
  expect(new Set(third.map((group) => group.epoch)).size).toBe(1)
  await env.until(Promise.all(third.map((group) => group.barrier())))
})

test('ranks skip a group when it was lost before they joined it', async () => {
  const size = 4
  const env = new VirtualEnv(8)
  const ranks = ranksOf(env, size)
  const first = await env.until(Promise.all(ranks.map(({ ring }) => ring.first())))
  first[0]!.abort(new PeerError('gpu.lost', 'rank 0 lost its device'))
  // The second group begins on rank 0 at once; the others hear of the first one's end 3 ms later, rank 2 after 6.
  await env.advance(7)
  const second = ranks.map(({ groups }) => groups.at(-1)!)
  expect(second.map((group) => group.epoch)).toEqual(Array(size).fill(followingEpoch(epoch)))
  second[1]!.abort(new PeerError('gpu.lost', 'rank 1 lost its device'))
  const next = await env.until(Promise.all(ranks.map(({ ring }, rank) => ring.after(first[rank]!))))
  const last = await env.until(
    Promise.all(next.map((group, rank) => (group.error ? ranks[rank]!.ring.after(group) : group))),
  )
  expect(new Set(last.map((group) => group.epoch))).toEqual(
    new Set([followingEpoch(followingEpoch(epoch))]),
  )
  await env.until(Promise.all(last.map((group) => group.barrier())))
})

test('no group follows a failure of another kind', async () => {
  const env = new VirtualEnv(9)
  const ranks = ranksOf(env, 3)
  const groups = await env.until(Promise.all(ranks.map(({ ring }) => ring.first())))
  groups[1]!.abort('enough')
  await env.until(Promise.all(groups.map((group) => group.failed)))
  for (const { groups: all } of ranks) expect(all).toHaveLength(1)
})

test('the following group ends too when the transport ended in between', async () => {
  const env = new VirtualEnv(6)
  const transports: MemoryLink[] = []
  const ranks = ranksOf(env, 2, transports)
  const [group] = await env.until(Promise.all(ranks.map(({ ring }) => ring.first())))
  for (const transport of transports) transport.close('the tab is gone')
  const [error] = await env.until(outcomes([ranks[0]!.ring.after(group!)]))
  expect(error).toMatchObject({
    code: 'peer.lost',
    message: expect.stringContaining('the tab is gone'),
  })
})

test('closing the newest epoch closes the transport, closing an earlier one does not', () => {
  const env = new VirtualEnv(7)
  const [transport] = memoryPair(env)
  const links = new EpochLinks(transport)
  const ends: string[] = []
  const first = links.open(epoch)
  const second = links.open(followingEpoch(epoch))
  second.onend = ({ why, detail }) => ends.push(`${why}: ${detail}`)
  first.close('given up')
  expect([ends, first.room(), transport.room()]).toEqual([[], 0, Number.POSITIVE_INFINITY])
  second.close('done')
  expect(ends).toEqual(['local: done'])
  expect(transport.room()).toBe(0)
})

test('an epoch that this end has not opened holds a bounded number of bytes, and with skips those of the newest one alone', async () => {
  const env = new VirtualEnv(10)
  const [near, far] = memoryPair(env)
  const links = new EpochLinks(near, true)
  let count = 0
  const send = async (of: number, bytes: number) => {
    const message = new Uint8Array(bytes)
    new DataView(message.buffer).setUint32(fieldOffset.epoch, of, true)
    far.send(message)
    count++
    await env.advance(1)
  }
  for (let of = 1; of <= 1000; of++) await send(of, headerBytes)
  expect(links.isUp).toBe(true)
  for (count = 0; links.isUp && count < 1000; ) await send(2000, 2 ** 16)
  expect(count * 2 ** 16).toBeLessThanOrEqual(maxEarlyBytes + 2 ** 16)
})
