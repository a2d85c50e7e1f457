import { afterEach, expect, test, vi } from 'vitest'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import type { LinkMeasurement } from '../../../src/peer/group/measure-links.ts'
import type { TrainerOptions } from '../../../src/trainer/loop/trainer.ts'
import type { TrainConfigInput } from '../../../src/trainer/settings/config.ts'
import { seenFolder } from '../../support/checkpoint-folders.ts'
import { trainDigits } from '../../support/digit-ranks.ts'
import { serveDigits } from '../../support/served-digits.ts'
import { startTask } from '../../support/task-ranks.ts'
import { resultsOf } from '../../support/train-ranks.ts'

afterEach(() => vi.restoreAllMocks())

/** So slow that the buckets are the smallest that a measurement gives. */
const slow = { choice: { oneShotMaxBytes: 0, directMaxBytes: 4096 }, bytesPerMs: 100 }

async function train(
  size: number,
  config: TrainConfigInput,
  others?: (rank: number) => Partial<TrainerOptions>,
) {
  const settings = { demo: 'playground', steps: 12, seed: 4, ...config } as const
  const { ranks, close } = await startTask(size, settings, () => new ReferenceRuntime(), others)
  try {
    return await Promise.all(
      ranks.map(async ({ trainer, end }) => ({ ...(await end), toKeep: trainer.links })),
    )
  } finally {
    close()
  }
}

test('a run uses the links of the run before if all ranks know them, and measures again if one does not', async () => {
  const known = await train(3, {}, () => ({ linksBefore: slow }))
  for (const { record, toKeep } of known) {
    expect(record.links).toEqual(slow)
    expect(toKeep).toEqual(slow)
    expect(record.bucketCapMb).toBe(1 / 16)
  }
  const isNew = (rank: number) => (rank === 1 ? {} : { linksBefore: slow })
  const others = { bytesPerMs: 200, choice: slow.choice }
  const differs = (rank: number) => ({ linksBefore: rank === 1 ? others : slow })
  for (const given of [isNew, differs]) {
    const results = await train(3, {}, given)
    expect(results[0].record.links.bytesPerMs).toBeGreaterThan(200)
    for (const { record, toKeep } of results) {
      expect(record.links).toEqual(results[0].record.links)
      expect(toKeep).toEqual(record.links)
    }
  }
})

test("a resumed run uses its checkpoint's links, which do not count as measured for the next run", async () => {
  const folder = seenFolder()
  const place = (linksBefore?: LinkMeasurement) => (): Partial<TrainerOptions> => ({
    checkpoints: { folder: async () => folder },
    linksBefore,
  })
  await train(2, { checkpointEvery: 6 }, place(slow))
  const others = { ...slow, bytesPerMs: 1e6 }
  for (const { record, toKeep } of await train(2, { resume: 'latest', steps: 18 }, place(others))) {
    expect(record.links).toEqual(slow)
    expect(record.bucketCapMb).toBe(1 / 16)
    expect(toKeep).toBeUndefined()
  }
})

test('the hash of the parameters has 16 digits, in however many buckets they travelled', async () => {
  serveDigits(36, (_, i) => (i * 7919) % 251)
  const run = async (input: TrainConfigInput) => {
    const [first] = resultsOf(await trainDigits(2, { epochs: 1, ...input }))
    return first
  }
  const one = await run({ bucketCapMb: 4 })
  const several = await run({ bucketCapMb: 0.05 })
  expect(one.record.buckets.length).toBeLessThan(several.record.buckets.length)
  expect(several.paramHash).toMatch(/^[0-9a-f]{16}$/)
  // Two numbers have one sum, whichever comes first.
  expect(several.paramHash).toBe(one.paramHash)
  expect((await run({ bucketCapMb: 4, seed: 5 })).paramHash).not.toBe(one.paramHash)
})
