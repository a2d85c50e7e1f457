import { type DataSplits, fillBatch, loadIdxFolder, readUrlFolder } from '../../src/data/dataset.ts'
import { builtInDigits } from '../../src/data/digits.ts'
import { crossEntropy, sampleCount, topKCorrect } from '../../src/graph/functions/linear.ts'
import { mlp } from '../../src/nn/mlp.ts'
import type { Module } from '../../src/nn/module.ts'
import type { TrainConfig } from '../../src/trainer/settings/config.ts'
import type { Task } from '../../src/trainer/settings/task.ts'
import { loadPart } from '../../src/util/load-part.ts'
import { type Shape, tensorType } from '../../src/util/shape.ts'
import { unpackIdx } from './idx-pack.ts'
import { meta } from './meta.ts'
import { queriesOf } from './queries.ts'

interface DigitsData extends DataSplits {
  makeModel(): Module
}

const isCnn = ({ model }: TrainConfig): boolean => model !== 'mlp'

const sampleShapeOf = (config: TrainConfig): Shape => (isCnn(config) ? [1, 28, 28] : [784])

/** Makes the model that the settings name: convolutions and their kernels are loaded for those who train with them. */
async function makerOf(config: TrainConfig): Promise<() => Module> {
  if (!isCnn(config)) return mlp
  const { cnn } = await loadPart('the model cnn', () => import('../../src/nn/cnn.ts'))
  return () => cnn({ batchNorm: config.model === 'cnn-bn' })
}

async function splitsOf(
  data: string,
  given: Uint8Array<ArrayBuffer> | null,
  baseUrl: string,
): Promise<DataSplits> {
  if (given) return loadIdxFolder(unpackIdx(given))
  return data === 'digits' ? builtInDigits() : loadIdxFolder(readUrlFolder(new URL(data, baseUrl)))
}

/** Digits in the layout of MNIST: images and the class of each. */
export const task: Task<DigitsData> = {
  meta,
  load: async ({ config, given, baseUrl }) => {
    const maker = makerOf(config)
    maker.catch(() => undefined)
    const splits = await splitsOf(config.data, given, baseUrl)
    return { ...splits, makeModel: await maker }
  },
  model: (_config, { makeModel }) => makeModel(),
  types: (config, _data, rows) => ({
    x: tensorType([rows, ...sampleShapeOf(config)]),
    y: tensorType([rows], 'i32'),
  }),
  fill: (data, split, indices, { x, y }) =>
    fillBatch(data[split], indices, x as Float32Array, y as Int32Array),
  forward: (model, { x }) => model.forward(x),
  loss: (logits, { y }) => crossEntropy(logits, y, { count: sampleCount() }),
  measure: (logits, { y }) => topKCorrect(logits, y, 1, { count: sampleCount() }),
  queries: queriesOf(sampleShapeOf),
}
