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
import type { TrainConfigInput } from '../../src/trainer/settings/config.ts'
import type { Task } from '../../src/trainer/settings/task.ts'
import { invariant } from '../../src/util/errors.ts'
import { resultsOf, smallDigits, trainRanks } from './train-ranks.ts'

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

/** Trainings with `exact` on the device cpu: every engine, CPU, number of threads and number of ranks gives the same bits. */
export const hashedModels = {
  mlp: { task: smallDigits, settings: digitsData },
  cnn: { task: withNorm, settings: { ...digitsData, model: 'cnn' } },
  gpt: { task: text as Task, settings: { demo: 'text', data: 'story', batchSize: 8 } },
} as const satisfies Record<string, { task: Task; settings: TrainConfigInput }>

export type HashedRun = readonly [model: keyof typeof hashedModels, optimizer: 'adamw' | 'sgd']

/** The hashes of 200 steps on the device cpu: those of an AMD EPYC with Node 20. */
export const hashes200 = {
  'mlp adamw': 'ad24539e9ca610c9',
  'mlp sgd': '4f2bebba37a9e0e1',
  'cnn adamw': 'b4cd01989850a436',
  'cnn sgd': 'c2af88f7b870d6dc',
  'gpt adamw': '657f6ad60a845cdf',
  'gpt sgd': '9536a91b1c9fee69',
} as const

export const inputOf = ([model, optimizer]: HashedRun, steps: number) => ({
  ...hashedModels[model].settings,
  ...{ optimizer, steps, lr: 0.01, exact: true, virtualWorkers: 4 },
})

/** The hash of the weights of each rank after `steps` steps, by threads and ranks. */
export async function hashesOf(
  run: HashedRun,
  steps: number,
  places: readonly { readonly threads: number; readonly ranks: number }[],
): Promise<Record<string, string>> {
  const { task } = hashedModels[run[0]]
  const input = inputOf(run, steps)
  const hashes: Record<string, string> = {}
  // Nine thousand digits are drawn once for all ranks.
  let data: ReturnType<Task['load']> | undefined
  const shared: Task = { ...task, load: (source) => (data ??= task.load(source)) }
  for (const { threads, ranks } of places) {
    const before = getNumThreads()
    setNumThreads(threads)
    const runtime = new Runtime(await openWasm())
    try {
      const ends = await trainRanks(ranks, input, () => runtime, undefined, shared)
      for (const [rank, { paramHash }] of resultsOf(ends).entries())
        hashes[`${threads} threads, rank ${rank} of ${ranks}`] = paramHash
      // Where threads share no memory or have ended, the hashes would say nothing of threads.
      const { description } = (runtime.gpu.device as { adapterInfo: GPUAdapterInfo }).adapterInfo
      invariant(description.includes(`, ${threads} thread`), () => description)
    } finally {
      runtime.gpu.close()
      setNumThreads(before)
    }
  }
  return hashes
}
