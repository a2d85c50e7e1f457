import { expect, test } from 'vitest'
import { parseTrainConfig } from '../../../demos/experiments.ts'
import { task as playground } from '../../../demos/playground/demo.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { planDraws } from '../../../src/trainer/evaluate/share-batches.ts'
import { seenFolder } from '../../support/checkpoint-folders.ts'
import { bitsOf, startTask, type TaskRank } from '../../support/task-ranks.ts'

const config = { demo: 'playground', steps: 8, batchSize: 12, bucketCapMb: 1 } as const
const open = () => new ReferenceRuntime()

const probabilities = (ranks: readonly TaskRank[]) =>
  Promise.all(
    ranks.map(async ({ trainer }) => {
      const answer = await trainer.query('boundary', { side: 8 })
      return [...(answer.probabilities as Float32Array)]
    }),
  )

test.each([
  [1, 1, 10],
  [3, 10, 33],
  [3, 5, 100],
  [4, 7, 20],
  [5, 5, 3],
  [3, 96, 11],
])(
  '%i ranks, batches of %i, %i samples: with own slices each sample comes once an epoch',
  (size, batchSize, samples) => {
    const draws = Array.from({ length: size }, (_, rank) =>
      planDraws({ seed: 3, batchSize, partition: 'own-slice' }, samples, rank, size),
    )
    for (const epoch of [0, 1]) {
      const seen: number[] = []
      for (let step = 0; step < draws[0].perEpoch; step++) {
        const taken = draws.map((one) => one.take(epoch, step))
        const counts = taken.map(({ own }) => own.length)
        const total = counts.reduce((sum, count) => sum + count, 0)
        expect(total).toBeGreaterThan(0)
        expect(total).toBeLessThanOrEqual(batchSize)
        // A batch that the data does not fill is shared all the same.
        if (samples <= batchSize) expect(Math.max(...counts) - Math.min(...counts)).toBeLessThan(2)
        for (const [rank, { own, globalCount }] of taken.entries()) {
          expect(globalCount).toBe(total)
          const { start, end } = draws[rank].slice
          expect([...own].every((index) => index >= start && index < end)).toBe(true)
          seen.push(...own)
        }
      }
      expect(seen.sort((a, b) => a - b)).toEqual(Array.from({ length: samples }, (_, i) => i))
    }
  },
)

test('own slices with an exchange give one model on all ranks, by other batches than shuffled ones', async () => {
  const ends = []
  for (const partition of ['own-slice', 'shuffled'] as const) {
    const { ranks, close } = await startTask(3, { ...config, partition }, open)
    const results = await Promise.all(ranks.map(({ end }) => end))
    const [first, ...others] = await probabilities(ranks)
    for (const other of others) expect(other).toEqual(first)
    expect(new Set(results.map(({ paramHash }) => paramHash)).size).toBe(1)
    ends.push(results[0].paramHash)
    close()
  }
  expect(ends[0]).not.toBe(ends[1])
})

test('strategy alone: equal first parameters, then another replica on each rank, with losses reported by rank', async () => {
  const alone = { ...config, strategy: 'alone', partition: 'own-slice', hashEvery: 2 } as const
  const still = await startTask(2, { ...alone, lr: 0, steps: 1 }, open)
  await Promise.all(still.ranks.map(({ end }) => end))
  const [a, b] = await Promise.all(still.ranks.map(({ trainer }) => trainer.stateDict()))
  expect(bitsOf(a)).toEqual(bitsOf(b))
  still.close()

  const { ranks, close } = await startTask(2, { ...alone, epochs: 1, steps: undefined }, open)
  const results = await Promise.all(ranks.map(({ end }) => end))
  expect(results[0].paramHash).not.toBe(results[1].paramHash)
  const [first, second] = await probabilities(ranks)
  expect(first).not.toEqual(second)
  const received = ranks.map(({ events }) =>
    events.flatMap((event) =>
      event.event === 'step' ? [event.loss] : event.event === 'evaluation' ? [event.value] : [],
    ),
  )
  expect(received[0]).toHaveLength(results[0].steps + 1)
  expect(received[0]).not.toEqual(received[1])
  close()
  expect(results.map(({ samples }) => samples)).toEqual([240, 240])
})

test('alone, a loss that is no number ends the run on all ranks', async () => {
  const { ranks, close } = await startTask(
    2,
    { ...config, strategy: 'alone', optimizer: 'sgd', lr: 3e38 },
    open,
  )
  const reasons = await Promise.all(ranks.map(({ end }) => end.catch((error: Error) => error)))
  for (const reason of reasons) expect(String(reason)).toContain('expected a finite loss')
  close()
})

const given = (points: readonly (readonly [number, number, number])[]) =>
  new Uint8Array(Float32Array.from(points.flat()).buffer)
const drawn = given(
  Array.from({ length: 40 }, (_, i) => [Math.cos(i), Math.sin(i), i % 2] as const),
)

test('data that a person gives on one rank reaches all of them', async () => {
  const { ranks, close } = await startTask(3, { ...config, data: 'given' }, open, (rank) =>
    rank === 1 ? { given: drawn } : {},
  )
  const answers = await Promise.all(
    ranks.map(async ({ trainer, until }) => {
      await until('step')
      return trainer.query('points', undefined)
    }),
  )
  expect((answers[0].train as Float32Array).length).toBe(64)
  for (const other of answers) expect(other).toEqual(answers[0])
  const results = await Promise.all(ranks.map(({ end }) => end))
  expect(new Set(results.map(({ paramHash }) => paramHash)).size).toBe(1)
  close()
})

test.each<[string, (rank: number) => Uint8Array | undefined]>([
  ['no rank has points (x, y and class as float32)', () => undefined],
  ['only one rank may supply data, got it from ranks 0 and 1', () => drawn],
  ['at most 48000 bytes, got 48012', (rank) => (rank === 0 ? new Uint8Array(48_012) : undefined)],
  [
    '7 bytes are not 10 or more points of 12 bytes',
    (rank) => (rank === 0 ? drawn.slice(0, 7) : undefined),
  ],
  [
    'point 3 has class 2, not 0 or 1',
    (rank) =>
      rank === 0
        ? given(Array.from({ length: 12 }, (_, i) => [0, 0, i === 3 ? 2 : 0] as const))
        : undefined,
  ],
])('given data: %s, on all ranks', async (text, of) => {
  const { ranks, close } = await startTask(2, { ...config, data: 'given' }, open, (rank) => ({
    given: of(rank),
  }))
  for (const { end } of ranks) await expect(end).rejects.toThrow(text)
  close()
})

test('float16 trains with a loss scale, the same bits on all ranks, and continues from a checkpoint with it', async () => {
  const half = { ...config, precision: 'float16', steps: 6 } as const
  const whole = await startTask(2, half, open)
  const wanted = await Promise.all(whole.ranks.map(({ end }) => end))
  whole.close()
  const plain = await startTask(2, { ...half, precision: 'float32' }, open)
  const [{ paramHash }] = await Promise.all(plain.ranks.map(({ end }) => end))
  plain.close()
  expect(wanted.map((result) => result.paramHash)).toEqual([
    wanted[0].paramHash,
    wanted[0].paramHash,
  ])
  expect(wanted[0].paramHash).not.toBe(paramHash)

  const folder = seenFolder()
  const place = () => ({ checkpoints: { folder: async () => folder } })
  const first = await startTask(2, { ...half, steps: 3, checkpointEvery: 3 }, open, place)
  await Promise.all(first.ranks.map(({ end }) => end))
  first.close()
  const second = await startTask(2, { ...half, resume: 'latest' }, open, place)
  const results = await Promise.all(second.ranks.map(({ end }) => end))
  expect(results[0].paramHash).toBe(wanted[0].paramHash)
  second.close()
  const other = await startTask(1, { ...config, resume: 'latest' }, open, place)
  await expect(other.ranks[0].end).rejects.toThrow('precision must be float16')
  other.close()
})

test('clipNorm clips the gradients of a float16 run too, after their scale is taken out', async () => {
  const losses = async (input: object) => {
    const { ranks, close } = await startTask(2, { ...config, optimizer: 'sgd', ...input }, open)
    await Promise.all(ranks.map(({ end }) => end))
    close()
    return ranks[0].events.flatMap((event) => (event.event === 'step' ? [event.loss] : []))
  }
  const free = await losses({})
  const clipped = await losses({ clipNorm: 0.1 })
  const half = await losses({ clipNorm: 0.1, precision: 'float16' })
  expect(Math.abs(clipped.at(-1)! - free.at(-1)!)).toBeGreaterThan(0.01)
  for (const [i, loss] of clipped.entries()) expect(half[i]).toBeCloseTo(loss, 2)
})

test('held-out samples are evaluated as often as asked, and reported by the name of the metric', async () => {
  const { ranks, close } = await startTask(2, { ...config, evaluateEvery: 3 }, open)
  await Promise.all(ranks.map(({ end }) => end))
  const received = ranks[1].events.flatMap((event) => (event.event === 'evaluation' ? [event] : []))
  expect(received.map(({ step }) => step)).toEqual([3, 6, 8])
  for (const { metric, value, accuracy } of received) {
    expect(metric).toBe(playground.meta.metric.name)
    expect(value).toBe(accuracy)
  }
  close()
})

test.each<[string, object]>([
  ['settings: demo: expected digits, playground, picture, or text', { demo: 'chess' }],
  ['picture, or text, got an object with toString. Correct', { demo: { toString: 1 } }],
  [`picture, or text, got ${'x'.repeat(79)}…. Correct`, { demo: 'x'.repeat(5000) }],
  ['settings: model: expected mlp, cnn, or cnn-bn, got tanh', { model: 'tanh' }],
  ['settings: data: expected spiral, circles', { demo: 'playground', data: '/data/' }],
  [
    "settings: resume: not available with the strategy 'alone'",
    { strategy: 'alone', resume: 'latest' },
  ],
  ['settings: precision: expected', { precision: 'bfloat16' }],
])('%s', (text, input) => {
  expect(() => parseTrainConfig(input)).toThrow(text)
})
