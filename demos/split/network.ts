import { epochOrder } from '../../src/data/shares.ts'
import { manualSeed } from '../../src/nn/init.ts'
import type { Module } from '../../src/nn/module.ts'
import { AdamW } from '../../src/optim/adam.ts'
import type { TrainConfigInput } from '../../src/trainer/settings/config.ts'
import { parseTrainConfig } from '../experiments.ts'
import { task } from '../playground/demo.ts'
import { meta } from '../playground/meta.ts'
import { drawSplits } from '../playground/points.ts'
import { batch } from './settings.ts'

/** The run of the playground whose steps this demo takes. */
export const run = {
  demo: 'playground',
  model: 'tanh-160-160-160',
  data: 'spiral',
  batchSize: batch,
} as const satisfies TrainConfigInput
const config = parseTrainConfig(run)

const data = drawSplits(config.data)
export const types = task.types(config, data, batch)

/** Four linear layers. Every one that is made begins with the same weights. */
export function makeNetwork(): Module {
  manualSeed(config.seed)
  return task.model(config, data)
}

export const makeOptimizer = (model: Module): AdamW =>
  new AdamW(model.parameters(), { lr: meta.models[config.model].lr })

export interface Batch {
  readonly x: Float32Array<ArrayBuffer>
  readonly y: Int32Array<ArrayBuffer>
}

/** The points of a step, from 0; an epoch has each once. */
export function batchOf(step: number): Batch {
  const { count } = data.train
  const first = batch * step
  const order = epochOrder(config.seed, Math.floor(first / count), count)
  const begin = first % count
  const inputs = { x: new Float32Array(2 * batch), y: new Int32Array(batch) }
  task.fill(data, 'train', order.subarray(begin, begin + batch), inputs)
  return inputs
}
