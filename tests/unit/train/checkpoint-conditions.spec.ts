import { afterEach, expect, test, vi } from 'vitest'
import { loadCheckpoint, saveCheckpoint } from '../../../src/ddp/checkpoint/checkpoint.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { type SeenFolder, seenFolder } from '../../support/checkpoint-folders.ts'
import {
  type ClassifierOptions,
  type ClassifyingRank,
  classifiers,
  endAll,
  parametersOf,
  train,
} from '../../support/classification.ts'

const runtime = new ReferenceRuntime()
const steps = 4
/** Two buckets and one: sums of three ranks come out with other bits. */
const [saved, other] = [0.006, 1]

afterEach(() => vi.restoreAllMocks())

const partsOf = ({ ddp: model, optimizer }: ClassifyingRank) => ({ model, optimizer })

/** A run of 3 ranks up to its checkpoint, and what it would have come to. */
async function savedRun(size = 3, options: ClassifierOptions = { bucketCapMb: saved }) {
  const folder = seenFolder()
  const ranks = await classifiers(size, runtime, undefined, options)
  await train(ranks, steps)
  await Promise.all(
    ranks.map((rank) => saveCheckpoint(partsOf(rank), { folder, processGroup: rank.group })),
  )
  await train(ranks, steps, undefined, steps)
  const [parameters] = await parametersOf(ranks)
  endAll(ranks)
  return { folder, parameters }
}

/** Continues from the checkpoint; returns also the differences that rank 0 received. */
async function resumed(
  folder: SeenFolder,
  { size = 3, isLate = false, ...options }: ClassifierOptions & { size?: number; isLate?: boolean },
) {
  const received: (readonly string[])[] = Array.from({ length: size }, () => [])
  const load = (parts: Parameters<typeof loadCheckpoint>[0], rank: number, processGroup: unknown) =>
    loadCheckpoint(parts, {
      folder,
      processGroup: processGroup as ClassifyingRank['group'],
      onDifferences: (differences) => {
        received[rank] = differences
      },
    })
  const ranks = await classifiers(size, runtime, undefined, {
    ...options,
    load: async ({ optimizer }, rank, ddp) =>
      isLate ? undefined : load({ model: ddp, optimizer }, rank, ddp.processGroup),
  })
  if (isLate) await Promise.all(ranks.map((own, rank) => load(partsOf(own), rank, own.group)))
  const caps = ranks.map(({ ddp }) => ddp.bucketCapMb)
  await train(ranks, steps, undefined, steps)
  const [parameters] = await parametersOf(ranks)
  endAll(ranks)
  for (const differences of received) expect(differences).toEqual(received[0])
  return { received: received[0], caps, parameters }
}

test('3 ranks: a size of buckets that nobody chose is the saved one, and the bits are those of the run that was saved', async () => {
  const { folder, parameters } = await savedRun()
  const same = await resumed(folder, { bucketCapMb: saved })
  expect(same).toEqual({ received: [], caps: [saved, saved, saved], parameters })
  const measured = await resumed(folder, { bucketCapMb: undefined })
  expect(measured).toEqual(same)
})

test('3 ranks: another size that the caller chose is kept and reported, with other bits', async () => {
  const { folder, parameters } = await savedRun()
  const changed = await resumed(folder, { bucketCapMb: other })
  expect(changed.received).toEqual([`bucketCapMb of model ${saved}, now ${other}`])
  expect(changed.caps).toEqual([other, other, other])
  expect(changed.parameters).not.toEqual(parameters)
  const first = await resumed(folder, { bucketCapMb: saved, firstBucketMb: 0.001 })
  expect(first.received).toEqual(['firstBucketMb of model 1, now 0.001'])
})

test('a step that is compiled already keeps its buckets, and the difference is reported', async () => {
  const { folder } = await savedRun()
  const late = await resumed(folder, { bucketCapMb: undefined, isLate: true })
  expect(late.caps[0]).toBeGreaterThan(saved)
  // The first bucket's size is measured too, and may differ as well.
  const ofFirst = late.received.filter((line) => line.startsWith('firstBucketMb'))
  expect(late.received).toEqual([`bucketCapMb of model ${saved}, now ${late.caps[0]}`, ...ofFirst])
})

test('another number of ranks is logged on the console of rank 0, unless the caller takes the differences', async () => {
  const warned = vi.spyOn(console, 'warn').mockImplementation(() => undefined)
  const { folder } = await savedRun()
  expect((await resumed(folder, { size: 2 })).received).toEqual(['ranks 3, now 2'])
  expect(warned).not.toHaveBeenCalled()
  const ranks = await classifiers(2, runtime)
  // Weights alone continue no run.
  await Promise.all(
    ranks.map((rank) => {
      const { model } = partsOf(rank)
      return loadCheckpoint({ model }, { folder, processGroup: rank.group, strict: false })
    }),
  )
  expect(warned).not.toHaveBeenCalled()
  await Promise.all(
    ranks.map((rank) => loadCheckpoint(partsOf(rank), { folder, processGroup: rank.group })),
  )
  endAll(ranks)
  expect(warned.mock.calls).toEqual([
    [
      'tabring: loadCheckpoint: the run will not continue bit for bit like the saved one: ranks 3, now 2.',
    ],
  ])
})
