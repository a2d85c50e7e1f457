import { type DataSplits, fillBatch, loadIdxFolder, readUrlFolder } from '../../src/data/dataset.ts'
import { makeDigits } from '../../src/data/digits.ts'
import { countedSamples, crossEntropy, topKCorrect } from '../../src/graph/functions.ts'
import { models } from '../../src/nn/models.ts'
import type { TrainConfig } from '../../src/train/config.ts'
import type { Task } from '../../src/train/task.ts'
import { tensorType } from '../../src/util/shape.ts'
import { unpackIdx } from './idx-pack.ts'
import { looksOf } from './looks.ts'
import { meta } from './meta.ts'

/** The settings name a model of the meta's. */
const recipeOf = ({ model }: TrainConfig) => (model === 'cnn' ? models.cnn : models.mlp)

/** Digits in the layout of MNIST: images and the class of each. */
export const task: Task<DataSplits> = {
  meta,
  load: async ({ config: { data }, given, baseUrl }) => {
    if (given) return loadIdxFolder(unpackIdx(given))
    return data === 'digits' ? makeDigits() : loadIdxFolder(readUrlFolder(new URL(data, baseUrl)))
  },
  model: (config) => recipeOf(config).make(),
  types: (config, _data, rows) => ({
    x: tensorType([rows, ...recipeOf(config).sampleShape]),
    y: tensorType([rows], 'i32'),
  }),
  fill: (data, split, indices, { x, y }) =>
    fillBatch(data[split], indices, x as Float32Array, y as Int32Array),
  loss: (model, { x, y }) => crossEntropy(model.forward(x), y, { count: countedSamples() }),
  measure: (model, { x, y }) => topKCorrect(model.forward(x), y, 1, { count: countedSamples() }),
  looks: looksOf((config) => recipeOf(config).sampleShape),
}
