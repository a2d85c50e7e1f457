import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { task as digits } from '../../../demos/digits/demo.ts'
import { getCheckpoint } from '../../../src/data/checkpoint-folder.ts'
import { load } from '../../../src/data/saved-tree.ts'
import { ExactStep } from '../../../src/ddp/exact/exact-step.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { BatchNorm1d } from '../../../src/nn/batch-norm.ts'
import { Dropout } from '../../../src/nn/dropout.ts'
import { Flatten, Linear, ReLU } from '../../../src/nn/layers.ts'
import { Sequential, type StateDict } from '../../../src/nn/module.ts'
import { CollectiveGroup } from '../../../src/peer/group/collective-group.ts'
import type { LinkMeasurement } from '../../../src/peer/group/measure-links.ts'
import { differencesOf } from '../../../src/trainer/saves/run-checkpoint.ts'
import type { TrainConfigInput } from '../../../src/trainer/settings/config.ts'
import type { Task } from '../../../src/trainer/settings/task.ts'
import type { RunRecord } from '../../../src/trainer/watch/run-events.ts'
import { type SeenFolder, seenFolder } from '../../support/checkpoint-folders.ts'
import { trainDigits } from '../../support/digit-ranks.ts'
import { serveDigits } from '../../support/served-digits.ts'
import { startTask } from '../../support/task-ranks.ts'
import {
  lossesOf,
  type RankEnd,
  resultsOf,
  resumedOf,
  trainRanks,
} from '../../support/train-ranks.ts'

// 36 samples in batches of 15: an epoch is 3 steps, of which the last is short, and no number of virtual workers divides the batch.

beforeEach(() => serveDigits(36, (_, i) => (i * 7919) % 251))
afterEach(() => vi.restoreAllMocks())

const exact = (size: number, input: TrainConfigInput = {}, folder?: SeenFolder) =>
  trainDigits(size, { exact: true, virtualWorkers: 4, epochs: 2, ...input }, folder)

/** One rank's end, which several tests compare with. */
let ofOne: Promise<RankEnd> | undefined
const endOfOne = () => (ofOne ??= exact(1).then(([one]) => one))

describe('a run with exact', () => {
  test.each([
    ['adamw', [2, 5]],
    ['sgd', [3]],
  ] as const)(
    'with %s ends with the same bits on one rank and on %j',
    async (optimizer, sizes) => {
      const [one] = await exact(1, { optimizer })
      const [{ paramHash, loss }] = resultsOf([one])
      for (const size of sizes) {
        const ranks = await exact(size, { optimizer })
        for (const rank of ranks) expect(lossesOf(rank)).toEqual(lossesOf(one))
        for (const result of resultsOf(ranks)) {
          expect(result.paramHash).toBe(paramHash)
          expect(result.loss).toBe(loss)
        }
      }
    },
    60_000,
  )

  test('plain runs of 1 and 2 ranks differ, so equal hashes say something', async () => {
    const hashes = [1, 2].map(async (size) => resultsOf(await trainDigits(size, {}))[0].paramHash)
    const [one, two] = await Promise.all(hashes)
    expect(two).not.toBe(one)
  }, 60_000)

  test('with batch normalization and dropout ends with the same bits, running statistics included', async () => {
    const model = () =>
      new Sequential(
        new Flatten(),
        new Linear(784, 16),
        new BatchNorm1d(16),
        new ReLU(),
        new Dropout(0.3),
        new Linear(16, 10),
      )
    const modelAfter = async (size: number) => {
      const folder = seenFolder()
      const shape = { epochs: 2, batchSize: 15, bucketCapMb: 0.3, seed: 3, checkpointEvery: 0 }
      const ends = await trainRanks(
        size,
        { exact: true, virtualWorkers: 3, ...shape },
        () => new ReferenceRuntime(),
        () => ({ folder: async () => folder }),
        { ...digits, model } as unknown as Task,
      )
      resultsOf(ends)
      return load((await getCheckpoint(folder, 'latest'))!).model as StateDict
    }
    const [alone, ...others] = await Promise.all([1, 2, 4].map(modelAfter))
    for (const state of others) expect(state).toEqual(alone)
    // They have been measured.
    expect(Math.max(...alone['2.running_var'].data)).toBeGreaterThan(0)
    expect([...alone['2.running_var'].data]).not.toContain(1)
  }, 60_000)

  const playground = async (size: number, input: TrainConfigInput, folder?: SeenFolder) => {
    const settings = { demo: 'playground', steps: 12, batchSize: 24, ...input } as const
    const place = () => (folder ? { checkpoints: { folder: async () => folder } } : {})
    const { ranks, close } = await startTask(size, settings, () => new ReferenceRuntime(), place)
    const ends = await Promise.all(
      ranks.map(async ({ end, events }) => ({ result: await end, events })),
    )
    close()
    expect(new Set(ends.map(({ result }) => result.paramHash)).size).toBe(1)
    return { paramHash: ends[0].result.paramHash, losses: lossesOf(ends[0]) }
  }

  test.each(['adamw', 'sgd'] as const)(
    'with %s and clipNorm ends with the same bits on 1, 2 and 3 ranks, and follows a plain run',
    async (optimizer) => {
      const free = await playground(1, { optimizer, exact: true })
      const clipped = { optimizer, clipNorm: 0.1 }
      const one = await playground(1, { ...clipped, exact: true })
      // Clipping had an effect.
      expect(Math.abs(one.losses.at(-1)! - free.losses.at(-1)!)).toBeGreaterThan(1e-3)
      for (const size of [2, 3])
        expect(await playground(size, { ...clipped, exact: true })).toEqual(one)
      const plain = await playground(2, clipped)
      for (const [i, loss] of plain.losses.entries()) expect(one.losses[i]).toBeCloseTo(loss, 4)
    },
  )

  test('in float16 ends with the same bits on 1, 2 and 3 ranks, and continues from a checkpoint with its scale', async () => {
    const half = { precision: 'float16', clipNorm: 0.1, exact: true } as const
    const one = await playground(1, half)
    const { paramHash } = await playground(1, { clipNorm: 0.1, exact: true })
    expect(one.paramHash).not.toBe(paramHash)
    for (const size of [2, 3]) expect(await playground(size, half)).toEqual(one)
    const plain = await playground(1, { ...half, exact: false })
    for (const [i, loss] of plain.losses.entries()) expect(one.losses[i]).toBeCloseTo(loss, 3)
    const folder = seenFolder()
    await playground(2, { ...half, steps: 5, checkpointEvery: 0 }, folder)
    const resumed = await playground(1, { ...half, resume: 'latest' }, folder)
    expect(resumed).toEqual({ ...one, losses: one.losses.slice(5) })
  })

  test('ends with the same bits with buckets of any size', async () => {
    const sums = vi.spyOn(CollectiveGroup.prototype, 'allReduce')
    const endOf = async (bucketCapMb?: number) => {
      sums.mockClear()
      const settings = { demo: 'playground', steps: 6, seed: 4, exact: true, bucketCapMb } as const
      const { ranks, close } = await startTask(3, settings, () => new ReferenceRuntime())
      const results = await Promise.all(ranks.map(({ end }) => end))
      close()
      const hashes = new Set(results.map(({ paramHash }) => paramHash))
      // Links are measured with floats, as often as it takes.
      const lengths = sums.mock.calls.flatMap(([data]) =>
        data instanceof Int32Array ? [data.length] : [],
      )
      return { hashes, lengths }
    }
    const whole = await endOf()
    expect(whole.hashes.size).toBe(1)
    for (const elements of [100, 37]) {
      const { hashes, lengths } = await endOf(elements / 2 ** 18)
      expect(hashes).toEqual(whole.hashes)
      expect(Math.max(...lengths)).toBe(elements)
      expect(lengths.length).toBeGreaterThan(whole.lengths.length)
    }
  }, 60_000)

  test('ends with the same bits by one-shot, direct, ring and machines-first sums', async () => {
    const hashOf = async (choice: LinkMeasurement['choice']) => {
      const settings = { demo: 'playground', steps: 12, seed: 4, exact: true } as const
      const options = () => ({ linksBefore: { choice, bytesPerMs: 100 } })
      const { ranks, close } = await startTask(4, settings, () => new ReferenceRuntime(), options)
      const results = await Promise.all(ranks.map(({ end }) => end))
      close()
      for (const { record } of results) expect(record.links?.choice).toEqual(choice)
      const hashes = results.map(({ paramHash }) => paramHash)
      expect(new Set(hashes).size).toBe(1)
      return hashes[0]
    }
    const oneShot = await hashOf({ oneShotMaxBytes: 2 ** 30, directMaxBytes: 2 ** 30 })
    expect(await hashOf({ oneShotMaxBytes: 0, directMaxBytes: 2 ** 30 })).toBe(oneShot)
    const ring = { oneShotMaxBytes: 0, directMaxBytes: 0 }
    expect(await hashOf(ring)).toBe(oneShot)
    const machines = { machines: [0, 0, 1, 1], hierarchicalMaxBytes: 2 ** 30 }
    expect(await hashOf({ ...ring, ...machines })).toBe(oneShot)
  }, 60_000)

  test('compares the states of all ranks at the start, every hashEvery steps and at the end', async () => {
    const compare = vi.spyOn(ExactStep.prototype, 'compare')
    resultsOf(await exact(2))
    const steps = compare.mock.calls.map(([, step]) => step)
    expect(steps.sort()).toEqual([0, 0, 2, 2, 4, 4, 6, 6, 6, 6])
  }, 60_000)

  test('ends with equal bits on all ranks when one lies about its gradients, and only another run shows from which step on', async () => {
    const hashesOf = ({ events }: RankEnd) =>
      events.flatMap((event) => (event.event === 'step' ? [event.stateHash] : []))
    const one = await endOfOne()
    const { allReduce } = CollectiveGroup.prototype
    const steps = new Set<unknown>()
    vi.spyOn(CollectiveGroup.prototype, 'allReduce').mockImplementation(function (
      this: CollectiveGroup,
      data,
      options,
    ) {
      // Full buckets have sums of gradients alone. In the last two of six steps they are reversed.
      if (this.rank === 1 && data instanceof Int32Array && data.length > 10_000)
        if (steps.add(options?.label).size > 4) for (const i of data.keys()) data[i] *= -1
      return allReduce.call(this, data, options)
    })
    const ranks = await exact(3)
    expect(steps.size).toBe(6)
    const [{ paramHash }] = resultsOf(ranks)
    for (const rank of ranks) {
      expect(rank.result?.paramHash).toBe(paramHash)
      expect(rank.events.filter(({ event }) => event === 'unlike')).toEqual([])
      // The state before each step, and after the last one.
      const same = hashesOf(rank).map((hash, step) => hash === hashesOf(one)[step])
      expect(same).toEqual([true, true, true, true, true, false])
    }
    expect(paramHash).not.toBe(one.result?.paramHash)
  }, 60_000)

  test('continues from a checkpoint on other ranks with the same bits, and reports changed settings', async () => {
    const [whole] = resultsOf([await endOfOne()])
    const folder = seenFolder()
    resultsOf(await exact(2, { epochs: 1, checkpointEvery: 0 }, folder))
    const [own] = await exact(1, { resume: 'latest' }, folder)
    expect(resultsOf([own])[0].paramHash).toBe(whole.paramHash)
    expect(resumedOf(own)[0].differences).toEqual([])
    const [{ record }] = resultsOf([own])
    const differences = (changes: Partial<RunRecord['config']>) => {
      const config = { ...record.config, ...changes }
      return differencesOf(digits.meta, record, { ...record, worldSize: 2, config })
    }
    expect(differences({ clipNorm: 2 })).toEqual(['clipNorm "none", now 2'])
    expect(differences({ aggregation: 'median', trust: 'strangers', strategy: 'alone' })).toEqual([
      'strategy "ddp", now "alone"',
      'trust "auto", now "strangers"',
      'aggregation "mean", now "median"',
    ])
    expect(differences({ virtualWorkers: 3 })).toEqual(['virtual workers 4, now 3'])
    expect(differences({ exact: false })).toEqual(['ranks 1, now 2', 'exact true, now false'])
  }, 60_000)

  test('follows the losses of a plain run', async () => {
    const [plain] = await trainDigits(1, { epochs: 2 })
    const own = await endOfOne()
    for (const [i, loss] of lossesOf(plain).entries()) expect(lossesOf(own)[i]).toBeCloseTo(loss, 4)
  }, 60_000)
})
