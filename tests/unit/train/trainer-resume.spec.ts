import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { readManifest } from '../../../src/data/checkpoint-folder.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import type { TrainConfigInput } from '../../../src/trainer/settings/config.ts'
import { type SeenFolder, seenFolder } from '../../support/checkpoint-folders.ts'
import { serveDigits } from '../../support/served-digits.ts'
import { lossesOf, resultsOf, resumedOf, trainRanks } from '../../support/train-ranks.ts'

// The built-in training on the CPU: 36 samples in batches of 15, so that an epoch is 3 steps, the last one short.
const settings = { batchSize: 15, bucketCapMb: 0.04, hashEvery: 2 } as const
const perEpoch = 3
beforeEach(() => serveDigits(36, (_, i) => (i * 7919) % 251))
afterEach(() => vi.restoreAllMocks())

const train = (size: number, input: TrainConfigInput, folder?: SeenFolder) =>
  trainRanks(
    size,
    { ...settings, ...input },
    () => new ReferenceRuntime(),
    (rank) =>
      folder && {
        folder: async () => {
          if (rank > 0) throw new Error(`rank ${rank} asked for the folder`)
          return folder
        },
      },
  )

test.each(['adamw', 'sgd'] as const)(
  '%s: 4 epochs of two ranks are 2, a checkpoint and 2 more, bit for bit',
  async (optimizer) => {
    const whole = await train(2, { optimizer, epochs: 4 })
    const folder = seenFolder()
    const first = await train(2, { optimizer, epochs: 2, checkpointEvery: 0 }, folder)
    resultsOf(first)
    expect(folder.written.filter((name) => name.endsWith('.safetensors'))).toEqual([
      'step-3.safetensors',
      'step-6.safetensors',
    ])
    const second = await train(
      2,
      { optimizer, epochs: 4, checkpointEvery: 0, resume: 'latest' },
      folder,
    )
    const results = resultsOf(second)
    for (const [rank, wanted] of resultsOf(whole).entries()) {
      const { paramHash, testAccuracy, bestAccuracy, steps, loss, heldOutLoss, trainValue } = wanted
      const same = { paramHash, testAccuracy, bestAccuracy, steps, loss, heldOutLoss, trainValue }
      expect(results[rank]).toMatchObject(same)
      expect([...lossesOf(first[rank]), ...lossesOf(second[rank])]).toEqual(lossesOf(whole[rank]))
    }
    expect(lossesOf(second[0])).toHaveLength(2 * perEpoch)
    for (const rank of [0, 1])
      expect(resumedOf(second[rank])).toEqual([
        {
          event: 'resumed',
          step: 6,
          epoch: 2,
          best: resultsOf(first)[0].bestAccuracy,
          bestAccuracy: resultsOf(first)[0].bestAccuracy,
          rank,
          stepsLeft: 2 * perEpoch,
          differences: [],
        },
      ])
    // What the first ranks have measured of their links holds for the second ones, too.
    const [{ record }] = resultsOf(first)
    expect(results.map(({ record: { links } }) => links)).toEqual([record.links, record.links])
  },
  60_000,
)

test('in the middle of an epoch, by the name of a file, and with fewer or more ranks', async () => {
  const whole = await train(2, { epochs: 2 })
  const folder = seenFolder()
  resultsOf(await train(2, { steps: 5, checkpointEvery: 2 }, folder))
  expect([...folder.files.keys()].sort()).toEqual(
    [
      'checkpoints.json',
      ...['step-4', 'step-5'].map((name) => `${name}.safetensors`),
      // Steps 2 and 3 have given way, but for the best one.
      ...((await readManifest(folder))?.best === 'step-3.safetensors'
        ? ['step-3.safetensors']
        : []),
    ].sort(),
  )
  const same = await train(2, { epochs: 2, resume: 'step-4.safetensors' }, folder)
  expect(resultsOf(same)[0].paramHash).toBe(resultsOf(whole)[0].paramHash)
  expect(lossesOf(same[1])).toEqual(lossesOf(whole[1]).slice(4))

  for (const size of [1, 3]) {
    const other = await train(size, { epochs: 2, resume: 'latest' }, folder)
    resultsOf(other)
    const [received] = resumedOf(other[0])
    expect(received.differences[0]).toBe(`ranks 2, now ${size}`)
    const [loss] = lossesOf(other[0])
    const expected = lossesOf(whole[0])[5]
    expect(Math.abs(loss / expected - 1)).toBeLessThan(1e-5)
  }
}, 60_000)

test('the best checkpoint is that of the best evaluation, also of a resumed run', async () => {
  const folder = seenFolder()
  const [{ events }] = await train(2, { epochs: 2, checkpointEvery: 0, lr: 0.01 }, folder)
  const again = await train(
    2,
    { epochs: 5, checkpointEvery: 0, lr: 0.01, resume: 'latest' },
    folder,
  )
  const [result] = resultsOf(again)
  const evaluations = [...events, ...again[0].events].flatMap((event) =>
    event.event === 'evaluation' ? [event] : [],
  )
  expect(evaluations).toHaveLength(5)
  let best = Number.NEGATIVE_INFINITY
  const improving = evaluations.filter(({ value, accuracy }) => {
    expect(accuracy).toBe(value)
    const isBest = value > best
    best = Math.max(best, value)
    return isBest
  })
  expect(result.bestAccuracy).toBe(best)
  const saved = [...events, ...again[0].events].flatMap((event) =>
    event.event === 'checkpoint' && event.isBest ? [event.step] : [],
  )
  expect(saved).toEqual(improving.map(({ step }) => step))
  expect((await readManifest(folder))?.best).toBe(`step-${improving.at(-1)!.step}.safetensors`)
}, 60_000)

test('a learning rate that the caller sets is reported and replaces the saved one', async () => {
  const folder = seenFolder()
  resultsOf(await train(1, { steps: 2, checkpointEvery: 0 }, folder))
  const ends = await train(1, { steps: 4, lr: 0, checkpointEvery: 0, resume: 'latest' }, folder)
  const whole = await train(1, { steps: 4 })
  expect(resumedOf(ends[0])[0].differences).toEqual(['learning rate 0.001, now 0'])
  expect(resultsOf(ends)[0].paramHash).not.toBe(resultsOf(whole)[0].paramHash)
  expect(lossesOf(ends[0])[0]).toBe(lossesOf(whole[0])[2])
}, 60_000)

test.each<[string, TrainConfigInput]>([
  ['batchSize must be 15, as in the saved run, got 12', { batchSize: 12 }],
  ['seed must be 0', { seed: 3 }],
  ['optimizer must be adamw', { optimizer: 'sgd' }],
  ['the checkpoint is of step 2, and this run ends at step 1', { steps: 1 }],
  ['the folder has no file "step-7.safetensors"', { resume: 'step-7.safetensors' }],
])(
  '%s: refused on all ranks',
  async (text, change) => {
    const folder = seenFolder()
    resultsOf(await train(2, { steps: 2, checkpointEvery: 0 }, folder))
    const ends = await train(2, { steps: 4, resume: 'latest', ...change }, folder)
    for (const { reason } of ends) expect(String(reason)).toContain(text)
  },
  60_000,
)

test('a run ends well, with nothing left to train, when it resumes from its last step', async () => {
  const folder = seenFolder()
  const whole = resultsOf(await train(2, { steps: 5, checkpointEvery: 2 }, folder))
  const written = folder.written.length
  for (const [which, size] of [
    ['latest', 2],
    ['latest', 1],
    // Saved between two evaluations, of a run that was to be longer.
    ['step-4.safetensors', 2],
  ] as const) {
    const steps = which === 'latest' ? 5 : 4
    const ends = await train(size, { steps, checkpointEvery: 2, resume: which }, folder)
    const reference = which === 'latest' ? whole : resultsOf(await train(2, { steps }))
    for (const { paramHash, testAccuracy, loss, steps: done, samples } of resultsOf(ends)) {
      // It counts what each rank has, so it is another on another number of them.
      if (size === 2) expect(paramHash).toBe(reference[0].paramHash)
      expect([testAccuracy, loss, done, samples]).toEqual([
        reference[0].testAccuracy,
        reference[0].loss,
        steps,
        0,
      ])
    }
    expect(lossesOf(ends[0])).toEqual([])
    expect(resumedOf(ends[0])).toMatchObject([{ step: steps, stepsLeft: 0 }])
  }
  expect(folder.written.length).toBe(written)
}, 60_000)

test('another number of samples is refused, and a folder without checkpoints', async () => {
  const folder = seenFolder()
  const [{ reason }] = await train(1, { steps: 4, resume: 'latest' }, folder)
  expect(String(reason)).toContain('resume: the folder has no checkpoint')
  resultsOf(await train(1, { steps: 2, checkpointEvery: 0 }, folder))
  vi.restoreAllMocks()
  serveDigits(30, (_, i) => i % 251)
  const [other] = await train(1, { steps: 4, resume: 'latest' }, folder)
  expect(String(other.reason)).toContain('the number of training samples must be 36')
}, 60_000)

test('a run whose last checkpoint cannot be saved keeps what it has trained, and reports it', async () => {
  const folder = seenFolder(() => {
    throw new Error('the disk is full')
  })
  const ends = await train(2, { epochs: 1, checkpointEvery: 0 }, folder)
  const [first, second] = resultsOf(ends)
  expect(second.paramHash).toBe(first.paramHash)
  for (const { events } of ends)
    expect(events.filter(({ event }) => event === 'unsaved')).toMatchObject([
      {
        step: first.steps,
        code: 'file.unwritable',
        text: expect.stringContaining('the disk is full'),
      },
    ])
}, 60_000)
