import { expect, test } from 'vitest'
import { useLauncherFolder } from '../support/launcher-folder.ts'
import { type ToldSplit, trainedSplit } from '../support/split-ranks.ts'

/** Models that are split over two tabs, joined by WebRTC: `tabring run` on a user's program. */

useLauncherFolder()

/** A rank holds its parameters, their gradients and momentum, and its program: nothing of what others have. */
function expectOwnBytes({ elements, heldBytes, stepBytes, allHeldBytes }: ToldSplit): void {
  const ownBytes = 3 * 4 * elements + stepBytes
  expect(heldBytes).toBeGreaterThanOrEqual(ownBytes - stepBytes)
  // Buckets end on a boundary of 256 bytes, each of them three times.
  expect(heldBytes).toBeLessThan(ownBytes + 16 * 1024)
  expect(heldBytes).toBeLessThan(allHeldBytes)
}

test.each(['model', 'pipeline'])(
  '%s parallel over two tabs ends with the bits of one',
  async (way) => {
    const ranks = await trainedSplit(way, 2)
    expect(ranks.map(({ differing }) => differing)).toEqual([[], []])
    const [zero, one] = ranks
    for (const { keys, allKeys } of ranks) expect(keys).toEqual(allKeys)
    // The loss is where the last layers are.
    expect(zero.losses).toEqual([])
    expect(one.losses).toEqual(one.expected)
    expect(one.losses).toHaveLength(4)
    expect(zero.elements + one.elements).toBe(zero.allElements)
    for (const { elements } of ranks) expect(elements).toBeGreaterThan(0)
    for (const { sentBytes } of ranks) expect(sentBytes).toBeGreaterThan(0)
    for (const rank of ranks) expectOwnBytes(rank)
  },
)

test('parameters sharded over two tabs end with the bits of DistributedDataParallel', async () => {
  const ranks = await trainedSplit('sharded', 2)
  for (const { differing, keys, allKeys, losses, elements, allElements } of ranks) {
    expect(differing).toEqual([])
    expect(keys).toEqual(allKeys)
    expect(losses).toHaveLength(4)
    expect(elements / allElements).toBeCloseTo(0.5, 1)
  }
  for (const rank of ranks) expectOwnBytes(rank)
})

test('layers divided over two tabs train as undivided ones do', async () => {
  const ranks = await trainedSplit('tensor', 2)
  for (const { keys, allKeys, losses, expected, elements, allElements } of ranks) {
    expect(keys).toEqual(allKeys)
    expect(losses).toEqual(ranks[0].losses)
    for (const [i, loss] of losses.entries()) expect(loss).toBeCloseTo(expected[i], 5)
    expect(elements).toBeLessThan(0.75 * allElements)
  }
})
