import { expect, test } from 'vitest'
import { parseTrainConfig } from '../../../demos/experiments.ts'
import { task as picture } from '../../../demos/picture/demo.ts'
import { task as playground } from '../../../demos/playground/demo.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import type { StateDict } from '../../../src/nn/module.ts'
import { planDraws } from '../../../src/trainer/evaluate/share-batches.ts'
import type { TrainConfigInput } from '../../../src/trainer/settings/config.ts'
import { startTask, type TaskRank } from '../../support/task-ranks.ts'

const open = () => new ReferenceRuntime()
const source = (input: TrainConfigInput) =>
  ({ config: parseTrainConfig(input), given: null, baseUrl: 'https://data.example/' }) as const

/** A matrix by vector with a bias, in float64. */
const linear = (state: StateDict, layer: number, x: readonly number[]) => {
  const { data: weight } = state[`${layer}.weight`]
  return Array.from(state[`${layer}.bias`].data, (bias, row) =>
    x.reduce((sum, value, column) => sum + value * weight[row * x.length + column], bias),
  )
}

interface Points {
  readonly at: Float32Array
  readonly classes: ArrayLike<number>
}

/** By plain loops in float64: mean cross entropy and accuracy of the playground's network over these points. */
function meansOf(state: StateDict, { at, classes }: Points, indices: readonly number[]) {
  let loss = 0
  let right = 0
  for (const index of indices) {
    const first = linear(state, 0, [at[2 * index], at[2 * index + 1]]).map(Math.tanh)
    const [a, b] = linear(state, 4, linear(state, 2, first).map(Math.tanh))
    const [own, other] = classes[index] === 0 ? [a, b] : [b, a]
    loss += Math.log1p(Math.exp(other - own))
    right += own > other ? 1 : 0
  }
  return { loss: loss / indices.length, value: right / indices.length }
}

const numbersTo = (end: number) => Array.from({ length: end }, (_, i) => i)
const stepsOf = ({ events }: TaskRank) =>
  events.flatMap((event) => (event.event === 'step' ? [event] : []))
const testsOf = ({ events }: TaskRank) =>
  events.flatMap((event) => (event.event === 'evaluation' ? [event] : []))

test.each([1, 3])(
  'on %i ranks each step reports loss and accuracy of its batch, each test those of the held-out samples',
  async (size) => {
    // Nothing is learned, so that all steps are of the parameters that are left. The last batch of the epoch is short.
    const input = { demo: 'playground', data: 'moons', lr: 0, epochs: 1, batchSize: 100 } as const
    const { ranks, close } = await startTask(size, { ...input, bucketCapMb: 1 }, open)
    const results = await Promise.all(ranks.map(({ end }) => end))
    const state = await ranks[0].trainer.stateDict()
    const { train, test: heldOut } = await playground.load(source(input))
    const draws = numbersTo(size).map((rank) =>
      planDraws(source(input).config, train.count, rank, size),
    )
    const counts = numbersTo(5).map((step) => draws.map((one) => one.take(0, step).own.length))
    expect(new Set(counts.map((one) => one.join())).size).toBe(2)

    const wanted = meansOf(state, heldOut as unknown as Points, numbersTo(heldOut.count))
    for (const [rank, { loss, heldOutLoss, value, trainValue }] of results.entries()) {
      const steps = stepsOf(ranks[rank])
      expect(steps).toHaveLength(5)
      for (const [step, received] of steps.entries()) {
        const batch = draws.flatMap((one) => [...one.take(0, step).own])
        const means = meansOf(state, train as unknown as Points, batch)
        expect(received.loss).toBeCloseTo(means.loss, 5)
        expect(received.value).toBeCloseTo(means.value, 6)
      }
      const [received] = testsOf(ranks[rank])
      expect(received.value).toBe(wanted.value)
      expect(received.loss).toBeCloseTo(wanted.loss, 5)
      expect([heldOutLoss, value]).toEqual([received.loss, received.value])
      expect([loss, trainValue]).toEqual([steps[4].loss, steps[4].value])
    }
    close()
  },
)

test('what is measured beside the loss changes no bit of the training', async () => {
  const input = { demo: 'playground', steps: 7, batchSize: 50, bucketCapMb: 1 } as const
  const { measure: _, ...plain } = playground
  const ends = []
  for (const task of [playground, plain]) {
    const { ranks, close } = await startTask(3, input, open, () => ({ task }))
    const [{ paramHash, heldOutLoss }] = await Promise.all(ranks.map(({ end }) => end))
    ends.push([paramHash, heldOutLoss, ...stepsOf(ranks[0]).map(({ loss }) => loss)])
    // What is not measured is no number, rather than 0.
    if (task === plain) expect(stepsOf(ranks[0])[0].value).toBeNaN()
    close()
  }
  expect(ends[1]).toEqual(ends[0])
})

test('a metric that is the loss in another unit follows from it', async () => {
  const { metric } = picture.meta
  const inBits = { ...picture, meta: { ...picture.meta, metric: { ...metric, ofLoss: 3 } } }
  const { ranks, close } = await startTask(
    2,
    { demo: 'picture', model: 'place', steps: 2, batchSize: 64, bucketCapMb: 1 },
    open,
    () => ({ task: inBits }),
  )
  await Promise.all(ranks.map(({ end }) => end))
  for (const rank of ranks) {
    for (const { loss, value } of [...stepsOf(rank), ...testsOf(rank)]) {
      expect(loss).toBeGreaterThan(0)
      expect(value).toBe(3 * loss)
    }
    // Means over thousands of samples are of the same size as a batch's.
    const [received] = testsOf(rank)
    expect(received.loss / stepsOf(rank)[1].loss).toBeGreaterThan(0.5)
    expect(received.loss / stepsOf(rank)[1].loss).toBeLessThan(2)
  }
  close()
})
