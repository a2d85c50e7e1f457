import { expect, test } from 'vitest'
import { TensorDataset } from '../../../src/data/datasets.ts'
import {
  destroyProcessGroup,
  initProcessGroup,
} from '../../../src/distributed/group/process-group.ts'
import type { Dataset } from '../../../src/entries/data.ts'
import { manualSeed, tensorType } from '../../../src/entries/index.ts'
import { type EvaluateOptions, evaluate } from '../../../src/entries/metrics.ts'
import { DistributedDataParallel } from '../../../src/entries/nn/parallel.ts'
import {
  BatchNorm1d,
  Dropout,
  Linear,
  type Module,
  ReLU,
  Sequential,
} from '../../../src/entries/nn.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { formulaUniform, formulaWord } from '../../support/formula-data.ts'
import { ringOf } from '../../support/process-ring.ts'

const runtime = new ReferenceRuntime()
const count = 1009
const [features, classes] = [6, 4]
const x = formulaUniform(1, count * features, 1)
const labels = Int32Array.from({ length: count }, (_, i) => formulaWord(2, i) % classes)

const datasetOf = (y: Int32Array<ArrayBuffer>) =>
  new TensorDataset({
    x: { data: x, shape: [count, features] },
    y: { data: y, shape: [count] },
  })

function makeModel(): Sequential {
  manualSeed(5)
  return new Sequential(
    new Linear(features, 8),
    new BatchNorm1d(8),
    new ReLU(),
    new Dropout(0.5),
    new Linear(8, classes),
  )
}

/** What the model says of each sample: one run over all of them. */
async function logits(): Promise<Float32Array> {
  const model = makeModel().eval()
  const program = await compile(
    (given) => ({ out: model.forward(given.x) }),
    { x: tensorType([count, features]) },
    { runtime },
  )
  return (await program.run({ x })).out as Float32Array
}
const out = await logits()
const answers = Array.from({ length: count }, (_, i) => {
  const row = [...out.slice(i * classes, (i + 1) * classes)]
  return row.indexOf(Math.max(...row))
})

async function evaluated(
  size: number,
  dataset: Dataset,
  options: Partial<EvaluateOptions> = {},
  isWrapped = true,
) {
  const groups = await ringOf(size)
  const all = await Promise.all(
    groups.map((processGroup) => {
      const own = makeModel()
      const model: Module = isWrapped
        ? new DistributedDataParallel(own, { processGroup, bucketCapMb: 1 })
        : own
      return evaluate(model, dataset, {
        runtime,
        ...(!isWrapped && { processGroup }),
        ...options,
      })
    }),
  )
  for (const group of groups) group.destroy()
  for (const other of all) expect(other).toEqual(all[0])
  return all[0]
}

test('1,009 held-out samples count once on 1, 2, 3 and 4 ranks: the same count, and sums of the same bits', async () => {
  const dataset = datasetOf(labels)
  const alone = await evaluate(makeModel(), dataset, { runtime })
  expect(alone.count).toBe(count)
  expect(alone.sums.correct).toBe(answers.filter((one, i) => one === labels[i]).length)
  const loss = answers.reduce((sum, _, i) => {
    const row = [...out.slice(i * classes, (i + 1) * classes)]
    return sum + Math.log(row.reduce((all, one) => all + Math.exp(one), 0)) - row[labels[i]]
  }, 0)
  expect(alone.sums.loss).toBeCloseTo(loss, 2)
  expect(alone.means.correct).toBe(alone.sums.correct / count)
  for (const size of [1, 2, 3, 4]) {
    expect(await evaluated(size, dataset), `${size} ranks`).toEqual(alone)
    expect(await evaluated(size, dataset, {}, false), `${size} ranks, plain`).toEqual(alone)
  }
})

test('a sample that is left out or counted twice shows, wherever it is', async () => {
  // One right answer at a time, at the ends of batches and of ranks' shares.
  for (const at of [0, 63, 64, 255, 256, 335, 336, 511, 512, 767, 768, 1007, 1008]) {
    const y = Int32Array.from(answers, (one, i) => (i === at ? one : (one + 1) % classes))
    for (const size of [2, 3, 4]) {
      const { sums } = await evaluated(size, datasetOf(y))
      expect(sums.correct, `sample ${at} on ${size} ranks`).toBe(1)
    }
  }
})

test('any sums, of batches of any size, with more ranks than batches', async () => {
  const dataset = datasetOf(labels)
  const small: Dataset = { length: 5, get: (index) => dataset.get(index) }
  for (const size of [1, 3, 4]) {
    for (const batchSize of [2, 64]) {
      const result = await evaluated(size, small, {
        batchSize,
        batchSums: ({ x }, count) => ({
          size: x.sum().mul(0).add(count),
        }),
      })
      expect(result).toEqual({ count: 5, sums: { size: 5 }, means: { size: 1 } })
    }
  }
  const none: Dataset = { length: 0, get: () => ({}) }
  await expect(evaluated(2, none)).rejects.toThrow(/^evaluate: dataset must be a data set of one/)
})

test('the group of initProcessGroup is the default; modules are as before afterwards', async () => {
  const model = makeModel()
  ;[...model.modules()][2].eval()
  const modes = [...model.modules()].map(({ training }) => training)
  const [links] = [new Map()]
  await initProcessGroup({ links, rank: 0, worldSize: 1 })
  const { count: counted } = await evaluate(model, datasetOf(labels), { runtime })
  await destroyProcessGroup()
  expect(counted).toBe(count)
  expect([...model.modules()].map(({ training }) => training)).toEqual(modes)
})

test('a failure on one rank is reported on all; results that are no sum and invalid options are refused', async () => {
  const groups = await ringOf(2)
  const dataset = datasetOf(labels)
  const broken: Dataset = {
    length: count,
    get: (index) => {
      if (index === 900) throw new Error('no such sample')
      return dataset.get(index)
    },
  }
  const outcomes = await Promise.allSettled(
    groups.map((processGroup) => evaluate(makeModel(), broken, { runtime, processGroup })),
  )
  const messages = outcomes.map((one) => (one.status === 'rejected' ? one.reason.message : ''))
  expect(messages[0]).toMatch(/^rank 1: .*sample 900/)
  expect(messages[1]).toMatch(/sample 900/)
  for (const group of groups) group.destroy()
  const model = makeModel()
  const of = (options: EvaluateOptions) => evaluate(model, dataset, { runtime, ...options })
  await expect(of({ batchSums: ({ x }) => ({ all: model.forward(x) }) })).rejects.toThrow(
    'evaluate: "all" must be a sum, an f32 tensor of one element, got f32[64, 4]',
  )
  await expect(of({ batchSums: (() => new Map([['x', 1]])) as never })).rejects.toThrow(
    'evaluate: batchSums must return sums by name, got a Map. ',
  )
  await expect(of({ batchSize: 0 })).rejects.toThrow('batchSize')
  await expect(
    evaluate(model, new TensorDataset({ words: { data: x, shape: [count, features] } }), {
      runtime,
    }),
  ).rejects.toThrow('evaluate: the samples have no fields x and y')
})

test('ranks that each pass a part of the data set, or other batches, are refused on all', async () => {
  const whole = datasetOf(labels)
  const part = (from: number, length: number): Dataset => ({
    length,
    get: (index) => whole.get(from + index),
  })
  const noise: Dataset = { length: 8, get: () => ({ x: Float32Array.of(Math.random()), y: 0 }) }
  const ends = async (datasets: readonly Dataset[], batchSizes = [64, 64]) => {
    const groups = await ringOf(datasets.length)
    const outcomes = await Promise.allSettled(
      groups.map((processGroup, rank) =>
        evaluate(makeModel(), datasets[rank], {
          runtime,
          processGroup,
          batchSize: batchSizes[rank],
          batchSums: ({ x }, count) => ({ size: x.sum().mul(0).add(count) }),
        }),
      ),
    )
    for (const group of groups) group.destroy()
    return outcomes.map((one) => (one.status === 'rejected' ? one.reason : one.value.count))
  }
  const refused = (said: RegExp) => {
    const error = { code: 'peer.mismatch', message: expect.stringMatching(said) }
    return [expect.objectContaining(error), expect.objectContaining(error)]
  }
  expect(await ends([part(0, 500), part(500, 509)])).toEqual(
    refused(/^evaluate: .*: 500 samples on rank 0, 509 samples on rank 1\. Pass the whole/),
  )
  expect(await ends([part(0, 500), part(500, 500)])).toEqual(
    refused(/labels or other whole numbers/),
  )
  // Parts that begin with the same sample.
  const sameFirst = (from: number): Dataset => ({
    length: 500,
    get: (index) => whole.get(index && from + index),
  })
  expect(await ends([sameFirst(0), sameFirst(500)])).toEqual(refused(/labels or other whole/))
  // A JPEG, which another browser decodes to a level more.
  const decoded = (level: number): Dataset => ({
    length: 8,
    get: (index) => ({ y: index % 2, x: Float32Array.of(index + level / 255) }),
  })
  expect(await ends([decoded(0), decoded(1)])).toEqual([8, 8])
  expect(await ends([whole, whole], [64, 32])).toEqual(refused(/batchSize 64 on rank 0/))
  expect(await ends([noise, noise])).toEqual([8, 8])
})
