import { expect, test } from 'vitest'
import { DataLoader } from '../../../src/data/loader/data-loader.ts'
import { DistributedSampler, type Padding } from '../../../src/data/sampler.ts'
import { allReduce } from '../../../src/distributed/call/functions.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { memoryMesh } from '../../support/memory-mesh.ts'

// Held-out samples over ranks: PyTorch's padding counts some twice, without it each counts once.

const held = { length: 1009, get: (index: number) => ({ right: Int32Array.of(index % 7 ? 1 : 0) }) }
const rightOnOne = Array.from({ length: held.length }, (_, i) => (i % 7 ? 1 : 0)).reduce<number>(
  (sum, one) => sum + one,
  0,
)

/** [right, samples] over all ranks, on every rank. */
async function evaluate(numReplicas: number, padding: Padding): Promise<number[][]> {
  const env = new VirtualEnv(numReplicas)
  const groups = memoryMesh(env, numReplicas)
  return env.until(
    Promise.all(
      groups.map(async (group, rank) => {
        const sampler = new DistributedSampler(held, { numReplicas, rank, shuffle: false, padding })
        const counts = new Int32Array(2)
        for (const index of sampler) {
          counts[0] += held.get(index).right[0]
          counts[1] += 1
        }
        expect(sampler.length).toBe(counts[1])
        await allReduce(counts, { group })
        return [...counts]
      }),
    ),
  )
}

test.each([1, 2, 3, 4])('1,009 samples count once each on %i ranks', async (numReplicas) => {
  for (const counts of await evaluate(numReplicas, 'none'))
    expect(counts).toEqual([rightOnOne, 1009])
})

test("PyTorch's padding counts some twice", async () => {
  const samples = []
  for (const numReplicas of [1, 2, 3, 4])
    samples.push((await evaluate(numReplicas, 'duplicate'))[0]![1])
  // As torch.utils.data.DistributedSampler 1.13 gives them.
  expect(samples).toEqual([1009, 1010, 1011, 1012])
})

test('fewer samples than ranks leave some without; a loader gives those no batch', async () => {
  const few = { length: 2, get: (index: number) => ({ x: Float32Array.of(index) }) }
  const parts = [0, 1, 2].map((rank) => {
    const sampler = new DistributedSampler(few, {
      numReplicas: 3,
      rank,
      shuffle: false,
      padding: 'none',
    })
    return { sampler, indices: [...sampler] }
  })
  expect(parts.map(({ indices }) => indices)).toEqual([[0], [1], []])
  let batches = 0
  for await (const _ of new DataLoader(few as never, { sampler: parts[2]!.sampler })) batches += 1
  expect(batches).toBe(0)
})

test('dropLast cuts, whatever the padding', () => {
  const parts = [0, 1].map((rank) => [
    ...new DistributedSampler(
      { length: 5 },
      { numReplicas: 2, rank, shuffle: false, dropLast: true, padding: 'none' },
    ),
  ])
  expect(parts).toEqual([
    [0, 2],
    [1, 3],
  ])
})
