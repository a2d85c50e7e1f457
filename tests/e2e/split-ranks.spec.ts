import { expect, test } from 'vitest'
import { useLauncherFolder } from '../support/launcher-folder.ts'
import { endsAsOne, expectOwnBytes, trainedSplit } from '../support/split-ranks.ts'

/** Models that are split over two tabs, joined by WebRTC: `tabring run` on a user's program. tests/all/e2e/split-ranks.spec.ts has other ways. */

useLauncherFolder()

test('a pipeline over two tabs ends with the bits of one', () => endsAsOne('pipeline'))

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
