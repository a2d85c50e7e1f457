import { softmax } from '../../src/graph/functions/activations.ts'
import { countedSamples, crossEntropy, topKCorrect } from '../../src/graph/functions.ts'
import { Tanh } from '../../src/nn/activations.ts'
import { Linear } from '../../src/nn/layers.ts'
import { Sequential } from '../../src/nn/module.ts'
import type { Look, Task } from '../../src/train/task.ts'
import { TabringError } from '../../src/util/errors.ts'
import { tensorType } from '../../src/util/shape.ts'
import { meta } from './meta.ts'
import { drawSplits, type Points, readPoints } from './points.ts'

interface PlaygroundData {
  readonly train: Points
  readonly test: Points
}

const most = 256

/** `{ side: 64 }`: the probability of class 1 on a grid over [-1, 1] x [-1, 1]. shape: `probabilities` [side, side], first row y = -1 */
const boundary: Look<PlaygroundData> = async ({ program }, input) => {
  const side = Number((input as { side?: unknown } | null)?.side)
  if (!Number.isInteger(side) || side < 2 || side > most) {
    throw new TabringError(
      'config.invalid',
      `boundary: side must be a whole number from 2 to ${most}, got ${side}. Give another side.`,
    )
  }
  const forward = await program(`${side}`, { x: tensorType([side * side, 2]) }, (model, { x }) => ({
    probabilities: softmax(model.forward(x), 1).select(1, 1),
  }))
  const at = (i: number) => (2 * i) / (side - 1) - 1
  const x = new Float32Array(2 * side * side)
  for (let i = 0; i < side * side; i++) x.set([at(i % side), at(Math.floor(i / side))], 2 * i)
  const { probabilities } = await forward.run({ x })
  return { side, probabilities }
}

/** The points, and which of those for training this rank draws from. */
const points: Look<PlaygroundData> = async ({ data: { train, test }, slice: { start, end } }) => ({
  train: train.at.slice(),
  trainClasses: train.classes.slice(),
  test: test.at.slice(),
  testClasses: test.classes.slice(),
  start,
  end,
})

/** Points in the plane, two classes, and a small network that tells them apart. */
export const task: Task<PlaygroundData> = {
  meta,
  load: async ({ config: { data }, given }) => (given ? readPoints(given) : drawSplits(data)),
  model: () =>
    new Sequential(
      new Linear(2, 16),
      new Tanh(),
      new Linear(16, 16),
      new Tanh(),
      new Linear(16, 2),
    ),
  types: (_config, _data, rows) => ({ x: tensorType([rows, 2]), y: tensorType([rows], 'i32') }),
  fill: (data, split, indices, { x, y }) => {
    const { at, classes } = data[split]
    indices.forEach((index, row) => {
      x.set(at.subarray(2 * index, 2 * index + 2), 2 * row)
      y[row] = classes[index]
    })
  },
  loss: (model, { x, y }) => crossEntropy(model.forward(x), y, { count: countedSamples() }),
  measure: (model, { x, y }) => topKCorrect(model.forward(x), y, 1, { count: countedSamples() }),
  looks: { boundary, points },
}
