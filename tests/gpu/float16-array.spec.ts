import { expect, test } from 'vitest'
import type { CollectiveArray, Float16Elements } from '../../src/entries/distributed.ts'
import * as dist from '../../src/entries/distributed.ts'
import { Float16Bits } from '../../src/peer/collective/float16-bits.ts'
import type { ProcessGroup } from '../../src/peer/group/group.ts'
import { meshOf, ringOf } from '../support/process-ring.ts'

// Node 20 has no Float16Array; the browsers have.

const Float16 = Reflect.get(globalThis, 'Float16Array') as {
  new (buffer: ArrayBufferLike, byteOffset?: number, length?: number): Float16Elements
  new (length: number): Float16Elements
  of(...values: number[]): Float16Elements
}
const size = 3
/** Numbers whose sums round, one below the normal ones, NaN with a payload, and infinity. */
const wordsOf = (rank: number) =>
  Uint16Array.of(
    0x3c01 + rank,
    0x6bff - rank,
    0x0003,
    0x7e12,
    0xfc00,
    0x1000 * rank,
    0x4a49,
    0x2e66,
    0x7800,
  )

type Make = (words: Uint16Array) => CollectiveArray
const kinds: Record<string, Make> = {
  // Not from the start of its buffer.
  Float16Array: (words) => {
    const room = new Uint16Array(words.length + 3)
    room.set(words, 1)
    return new Float16(room.buffer, 2, words.length)
  },
  Float16Bits: (words) => new Float16Bits(words.slice().buffer),
}
const bits = ({ buffer, byteOffset, length }: CollectiveArray) => [
  ...new Uint16Array(buffer, byteOffset, length),
]

/** What all calls leave in a rank's tensors. */
async function called(make: Make, group: ProcessGroup): Promise<number[][]> {
  const { rank } = group
  const own = () => make(wordsOf(rank))
  const empty = (length: number) => make(new Uint16Array(length))
  const left: CollectiveArray[] = []
  for (const op of Object.values(dist.ReduceOp)) {
    const tensor = own()
    await dist.allReduce(tensor, { group, op })
    left.push(tensor)
  }
  const one = own()
  await dist.broadcast(one, 1, { group })
  const list = Array.from({ length: size }, () => empty(9))
  await dist.allGather(list, own(), { group })
  const whole = empty(9 * size)
  await dist.allGatherIntoTensor(whole, own(), { group })
  const part = empty(3)
  await dist.reduceScatterTensor(part, own(), { group })
  const swapped = empty(9)
  await dist.allToAllSingle(swapped, own(), null, null, { group })
  const gathered = Array.from({ length: size }, () => empty(9))
  await dist.gather(own(), rank === 0 ? gathered : null, 0, { group })
  const scattered = empty(9)
  await dist.scatter(scattered, rank === 0 ? gathered : null, 0, { group })
  left.push(
    one,
    ...list,
    whole,
    part,
    swapped,
    ...gathered,
    scattered,
    await group.allGatherConcat(own()),
  )
  if (rank === 0) await dist.send(own(), 1, { group })
  if (rank === 1) {
    const received = empty(9)
    await dist.recv(received, 0, { group })
    left.push(received)
  }
  return left.map(bits)
}

test.each([
  ['linked all to all', meshOf],
  ['in a ring', (count: number) => ringOf(count)],
])('a Float16Array goes as its bits go, %s', async (_, open) => {
  const results: number[][][][] = []
  for (const make of Object.values(kinds)) {
    const groups = await open(size)
    results.push(await Promise.all(groups.map((group) => called(make, group))))
    for (const group of groups) group.destroy()
  }
  expect(results[0]).toEqual(results[1])
  const [sums] = results[0][0]
  expect(sums).not.toEqual(bits(kinds.Float16Bits(wordsOf(0))))
})

test('it sums in place, and gives back one of its kind', async () => {
  const groups = await meshOf(2)
  const arrays = await Promise.all(
    groups.map(async (group) => {
      const tensor = Float16.of(1, 2)
      await dist.allReduce(tensor, { group })
      return [tensor, await group.allGatherConcat(tensor)]
    }),
  )
  for (const [tensor, all] of arrays) {
    expect(tensor).toEqual(Float16.of(2, 4))
    expect(all).toEqual(Float16.of(2, 4, 2, 4))
  }
  for (const group of groups) group.destroy()
})
