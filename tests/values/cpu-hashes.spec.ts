import { afterAll, beforeAll, expect, test } from 'vitest'
import { task as digits } from '../../demos/digits/demo.ts'
import { task as text } from '../../demos/text/demo.ts'
import { getNumThreads, setNumThreads } from '../../src/gpu/num-threads.ts'
import { openWasm } from '../../src/gpu/wasm/open.ts'
import { Runtime } from '../../src/graph/memory/runtime.ts'
import { BatchNorm2d } from '../../src/nn/batch-norm.ts'
import { Conv2d } from '../../src/nn/convolution.ts'
import { Flatten, Linear, ReLU } from '../../src/nn/layers.ts'
import { Sequential } from '../../src/nn/module.ts'
import { MaxPool2d } from '../../src/nn/pooling.ts'
import type { Task } from '../../src/trainer/settings/task.ts'
import { resultsOf, smallDigits, trainRanks } from '../support/train-ranks.ts'

// These hashes are those of an AMD EPYC with Node 20: every engine, CPU, number of threads and number of ranks gives them.

const withNorm = {
  ...digits,
  model: () =>
    new Sequential(
      new Conv2d(1, 4, 3),
      new BatchNorm2d(4),
      new ReLU(),
      new MaxPool2d(4),
      new Flatten(),
      new Linear(144, 10),
    ),
} as typeof digits as unknown as Task

const digitsData = { data: 'digits', batchSize: 16 } as const
const runs = [
  {
    name: 'an MLP by AdamW',
    task: smallDigits,
    settings: { ...digitsData, optimizer: 'adamw', steps: 30 },
    hash: '13b98878c50bff98',
  },
  {
    name: 'a CNN with batch norm by SGD',
    task: withNorm,
    settings: { ...digitsData, model: 'cnn', optimizer: 'sgd', steps: 15 },
    hash: '5eeb4ff15d78ade9',
  },
  {
    name: 'a GPT by AdamW',
    task: text as Task,
    settings: { demo: 'text', data: 'story', batchSize: 8, optimizer: 'adamw', steps: 4 },
    hash: 'f39f348c3f09bad7',
  },
] as const

const runtimes = new Map<number, Runtime>()
beforeAll(async () => {
  const before = getNumThreads()
  for (const threads of [1, 2, 4]) {
    setNumThreads(threads)
    runtimes.set(threads, new Runtime(await openWasm()))
  }
  setNumThreads(before)
})
afterAll(() => {
  for (const { gpu } of runtimes.values()) gpu.close()
})

test.each(runs)(
  'the device cpu trains $name to the same bits on any threads and ranks',
  async ({ task, settings, hash }) => {
    const input = { ...settings, lr: 0.01, exact: true, virtualWorkers: 4 }
    const hashes: Record<string, string> = {}
    for (const [threads, ranks] of [
      [1, 1],
      [2, 3],
      [4, 2],
    ]) {
      const ends = await trainRanks(ranks, input, () => runtimes.get(threads)!, undefined, task)
      for (const [rank, { paramHash }] of resultsOf(ends).entries())
        hashes[`${threads} threads, rank ${rank} of ${ranks}`] = paramHash
    }
    expect(hashes).toEqual(Object.fromEntries(Object.keys(hashes).map((key) => [key, hash])))
  },
)
