import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { task as text } from '../../../../demos/text/demo.ts'
import { ReferenceRuntime } from '../../../../src/graph/memory/runtime.ts'
import type { TrainConfigInput } from '../../../../src/trainer/settings/config.ts'
import type { Task } from '../../../../src/trainer/settings/task.ts'
import { seenFolder } from '../../../support/checkpoint-folders.ts'
import { trainDigits } from '../../../support/digit-ranks.ts'
import { serveDigits } from '../../../support/served-digits.ts'
import { lossesOf, resultsOf, trainRanks } from '../../../support/train-ranks.ts'

beforeEach(() => serveDigits(36, (_, i) => (i * 7919) % 251))
afterEach(() => vi.restoreAllMocks())

test('two sharded ranks with sgd end with the bits of two whole ones', async () => {
  const [expected] = resultsOf(await trainDigits(2, { optimizer: 'sgd', epochs: 2 }))
  const sharded = await trainDigits(2, { optimizer: 'sgd', epochs: 2, parallel: 'fsdp' })
  for (const { paramHash } of resultsOf(sharded)) expect(paramHash).toBe(expected.paramHash)
}, 60_000)

test('float16 with loss scaling trains 4 ranks in stages', async () => {
  const settings = { epochs: 2, precision: 'float16' } as const
  const [one] = await trainDigits(1, settings)
  const ranks = await trainDigits(4, { ...settings, parallel: 'pp=2' })
  expect(new Set(resultsOf(ranks).map(({ paramHash }) => paramHash)).size).toBe(1)
  for (const rank of ranks)
    for (const [i, loss] of lossesOf(one).entries()) expect(lossesOf(rank)[i]).toBeCloseTo(loss, 2)
}, 60_000)

test('4 ranks in two pipelines of 2 stages follow one rank, and agree', async () => {
  const [one] = await trainDigits(1, { epochs: 2 })
  const [alone] = resultsOf([one])
  const ranks = await trainDigits(4, { epochs: 2, parallel: 'pp=2' })
  const results = resultsOf(ranks)
  expect(new Set(results.map(({ paramHash }) => paramHash)).size).toBe(1)
  expect(results.reduce((sum, { samples }) => sum + samples, 0)).toBe(alone.samples)
  for (const [i, rank] of ranks.entries()) {
    for (const [at, loss] of lossesOf(one).entries())
      expect(lossesOf(rank)[at]).toBeCloseTo(loss, 4)
    expect(results[i].heldOutLoss).toBeCloseTo(alone.heldOutLoss, 4)
  }
}, 60_000)

test('a sharded run continues whole, and a whole one sharded, to the bits of a run without a break', async () => {
  const [whole] = resultsOf(await trainDigits(2, { epochs: 4 }))
  for (const [first, second] of [
    ['fsdp', 'dp'],
    ['dp', 'fsdp'],
  ] as const) {
    const folder = seenFolder()
    resultsOf(await trainDigits(2, { epochs: 2, checkpointEvery: 0, parallel: first }, folder))
    const next = { epochs: 4, checkpointEvery: 0, resume: 'latest', parallel: second } as const
    for (const { paramHash } of resultsOf(await trainDigits(2, next, folder)))
      expect(paramHash).toBe(whole.paramHash)
  }
}, 60_000)

test('a pipeline saves the whole, and continues after a pause of any kind of run', async () => {
  const [whole] = resultsOf(await trainDigits(2, { epochs: 4, parallel: 'pp=2' }))
  for (const [first, second] of [
    ['pp=2', 'pp=2'],
    ['pp=2', 'dp'],
    ['dp', 'pp=2'],
    ['fsdp', 'pp=2'],
  ] as const) {
    const folder = seenFolder()
    resultsOf(await trainDigits(2, { epochs: 2, checkpointEvery: 0, parallel: first }, folder))
    const next = { epochs: 4, checkpointEvery: 0, resume: 'latest', parallel: second } as const
    for (const { paramHash, loss } of resultsOf(await trainDigits(2, next, folder))) {
      if (first === second) expect(paramHash).toBe(whole.paramHash)
      expect(loss).toBeCloseTo(whole.loss, 4)
    }
  }
}, 60_000)

test('a GPT, whose output layer reads the table of the input, trains sharded and in stages', async () => {
  const settings = { demo: 'text', data: 'story', steps: 2, batchSize: 4 } as const
  const run = async (size: number, input: TrainConfigInput = {}) =>
    resultsOf(
      await trainRanks(
        size,
        { ...settings, ...input },
        () => new ReferenceRuntime(),
        () => undefined,
        text as unknown as Task,
      ),
    )
  const [one] = await run(1)
  for (const parallel of ['fsdp', 'pp=2'])
    for (const { loss, heldOutLoss } of await run(2, { parallel })) {
      expect(loss).toBeCloseTo(one.loss, 4)
      expect(heldOutLoss).toBeCloseTo(one.heldOutLoss, 4)
    }
}, 120_000)
