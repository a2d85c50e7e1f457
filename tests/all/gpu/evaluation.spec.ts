import { afterEach, expect, test } from 'vitest'
import { task } from '../../../demos/digits/demo.ts'
import { parseTrainConfig } from '../../../demos/experiments.ts'
import { type DataSplits, fillBatch } from '../../../src/data/dataset.ts'
import { TensorDataset } from '../../../src/data/datasets.ts'
import { drawDigits } from '../../../src/data/digits.ts'
import { readSafetensors } from '../../../src/data/safetensors.ts'
import { DistributedDataParallel } from '../../../src/ddp/data-parallel/data-parallel.ts'
import { evaluate } from '../../../src/ddp/metrics/evaluate-dataset.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import type { Module } from '../../../src/nn/module.ts'
import { type Evaluated, Evaluation } from '../../../src/trainer/evaluate/evaluate.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { seededRandom } from '../../../src/util/virtual-env.ts'
import fileUrl from '../../golden/trained-cnn.safetensors?url'
import { models } from '../../support/models.ts'
import { ringOf } from '../../support/process-ring.ts'
import { testRuntime } from '../../support/run-op.ts'

// Held-out samples of which no number of ranks up to 4 but one gets as many as the others: PyTorch's padding counts some of them twice.
const count = 1009
/** None that divides a rank's part, so that each rank's last batch is short. */
const trainingRows = 100

type Test = DataSplits['test']

afterEach(async () => (await testRuntime()).gpu.check())

const trained = new Uint8Array(await (await fetch(fileUrl)).arrayBuffer())
const makers = {
  // An empty image is a 0 to this one: so a row that only fills a batch, with an empty image and label 0, would be right if it counted.
  mlp: () => {
    manualSeed(20)
    return models.mlp.make()
  },
  cnn: () => {
    const model = models.cnn.make()
    model.loadStateDict(Object.fromEntries(readSafetensors(trained).tensors))
    return model
  },
} satisfies Partial<Record<keyof typeof models, () => Module>>
type Name = keyof typeof makers

/** What the model says of each sample, and behind them of an empty image: all in one run. */
async function logitsOf(name: Name, data: Test): Promise<number[][]> {
  const model = makers[name]()
  const { sampleShape, classes } = models[name]
  const forward = await compile(
    ({ x }) => ({ logits: model.forward(x) }),
    { x: tensorType([count + 1, ...sampleShape]) },
    { runtime: await testRuntime() },
  )
  const x = new Float32Array((count + 1) * data.height * data.width)
  fillBatch(data, [...Array(count).keys()], x, new Int32Array(count + 1))
  const { logits } = await forward.run({ x })
  forward.destroy()
  return Array.from({ length: count + 1 }, (_, i) => [
    ...logits.slice(i * classes, (i + 1) * classes),
  ])
}

const largest = (row: readonly number[]) => row.indexOf(Math.max(...row))

/** By a plain loop in float64: the mean over samples of log(sum of exp) less the logit of the label. */
function meanLoss(logits: readonly (readonly number[])[], labels: ArrayLike<number>): number {
  let sum = 0
  for (const [i, row] of logits.entries()) {
    const max = Math.max(...row)
    sum += max + Math.log(row.reduce((all, one) => all + Math.exp(one - max), 0)) - row[labels[i]]
  }
  return sum / logits.length
}

/** Results by rank for each of several labellings of the same images. */
async function evaluatedOn(
  name: Name,
  size: number,
  images: Test,
  labellings: readonly Test['labels'][],
): Promise<Evaluated[][]> {
  const runtime = await testRuntime()
  const groups = await ringOf(size)
  const data = { ...images }
  const evaluations = await Promise.all(
    groups.map(async (group, rank) => {
      const model = makers[name]()
      // What rank 0 has counts.
      if (rank > 0) for (const one of model.parameters()) one.assign(new Float32Array(one.count))
      const ddp = new DistributedDataParallel(model, { processGroup: group, bucketCapMb: 1 })
      await ddp.ready
      const config = parseTrainConfig({ model: name })
      const splits = { train: data, test: data }
      return new Evaluation({
        runtime,
        model: ddp,
        task,
        config,
        data: splits,
        ranks: group,
        trainingRows,
      })
    }),
  )
  const received: Evaluated[][] = groups.map(() => [])
  for (const labels of labellings) {
    data.labels = labels
    const all = await Promise.all(evaluations.map((evaluation) => evaluation.run()))
    for (const [rank, evaluated] of all.entries()) received[rank].push(evaluated)
  }
  for (const evaluation of evaluations) evaluation.destroy()
  for (const group of groups) group.destroy()
  return received
}

test.each([
  ['cnn', [3], 2],
  ['mlp', [1, 2, 3, 4], 7],
] as const)(
  '%s: each of 1,009 held-out samples counts once on %j ranks',
  async (name, sizes, setCount) => {
    const images = drawDigits(0, 1, count)
    const logits = await logitsOf(name, images)
    const ofEmpty = largest(logits.pop()!)
    const answers = logits.map(largest)
    if (name === 'mlp') expect(ofEmpty).toBe(0)
    const labelsWhere = (isRight: (index: number) => boolean) =>
      Uint8Array.from(answers, (one, i) => (isRight(i) ? one : (one + 1) % 10))
    // A sample that is left out, or counted twice, changes the count of about half of such sets.
    const random = seededRandom(9)
    const sets = Array.from({ length: setCount }, () => answers.map(() => random() < 0.5))
    const labellings = [
      images.labels,
      labelsWhere(() => true),
      ...sets.map((set) => labelsWhere((i) => set[i]!)),
    ]
    const right = labellings.map((labels) => answers.filter((one, i) => one === labels[i]).length)
    expect(right[1]).toBe(count)
    // One that was trained knows digits.
    if (name === 'cnn') expect(right[0]).toBeGreaterThan(0.5 * count)
    const losses = labellings.map((labels) => meanLoss(logits, labels))
    for (const size of sizes) {
      for (const received of await evaluatedOn(name, size, images, labellings)) {
        expect(
          received.map(({ value }) => value),
          `${size} ranks`,
        ).toEqual(right.map((one) => one / count))
        for (const [i, { loss }] of received.entries())
          expect(Math.abs(loss - losses[i]), `${size} ranks`).toBeLessThan(1e-5 * losses[i])
      }
    }
  },
)

test('evaluate() gives sums of the same bits on 1, 2 and 3 ranks', async () => {
  const runtime = await testRuntime()
  const images = drawDigits(0, 1, count)
  const { sampleShape } = models.cnn
  const x = new Float32Array(count * images.height * images.width)
  const y = new Int32Array(count)
  fillBatch(images, [...Array(count).keys()], x, y)
  const dataset = new TensorDataset({
    x: { data: x, shape: [count, ...sampleShape] },
    y: { data: y, shape: [count] },
  })
  const alone = await evaluate(makers.cnn(), dataset, { runtime })
  const answers = (await logitsOf('cnn', images)).map(largest)
  expect(alone.count).toBe(count)
  expect(alone.sums.correct).toBe(answers.filter((one, i) => one === y[i]).length)
  expect(alone.sums.correct).toBeGreaterThan(count / 2)
  for (const size of [2, 3]) {
    const groups = await ringOf(size)
    const all = await Promise.all(
      groups.map((processGroup) => {
        const model = new DistributedDataParallel(makers.cnn(), { processGroup, bucketCapMb: 1 })
        return evaluate(model, dataset, { runtime })
      }),
    )
    for (const group of groups) group.destroy()
    for (const received of all) expect(received, `${size} ranks`).toEqual(alone)
  }
})
