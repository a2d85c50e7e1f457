import { softmax } from '../../src/graph/functions/activations.ts'
import { crossEntropy, sampleCount, topKCorrect } from '../../src/graph/functions/linear.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import { Sigmoid, Tanh } from '../../src/nn/activations.ts'
import { Linear, ReLU } from '../../src/nn/layers.ts'
import { Sequential } from '../../src/nn/module.ts'
import { answerOfPart, type ModelQuery, type Task } from '../../src/trainer/settings/task.ts'
import { TabringError } from '../../src/util/errors.ts'
import { tensorType } from '../../src/util/shape.ts'
import { meta } from './meta.ts'
import { partsOf } from './networks.ts'
import { drawSplits, type Points, readPoints } from './points.ts'

interface PlaygroundData {
  readonly train: Points
  readonly test: Points
}

const modules = { tanh: Tanh, relu: ReLU, sigmoid: Sigmoid }

const max = 256

/** The places of a grid over [-1, 1] x [-1, 1], as many along each edge as a page asked for. shape: [side², 2], first row y = -1 */
function gridOf(where: string, input: unknown): { side: number; x: Float32Array<ArrayBuffer> } {
  const side = Number((input as { side?: unknown } | null)?.side)
  if (!Number.isInteger(side) || side < 2 || side > max) {
    throw new TabringError(
      'config.invalid',
      `${where}: side must be a whole number from 2 to ${max}, got ${side}. Use another side.`,
    )
  }
  const at = (i: number) => (2 * i) / (side - 1) - 1
  const x = new Float32Array(2 * side * side)
  for (let i = 0; i < side * side; i++) x.set([at(i % side), at(Math.floor(i / side))], 2 * i)
  return { side, x }
}

/** `{ side: 64 }`: the probability of class 1 on a grid. shape: `probabilities` [side, side] */
const boundary: ModelQuery<PlaygroundData> = async ({ program }, input) => {
  const { side, x } = gridOf('boundary', input)
  const forward = await program(`${side}`, { x: tensorType([side * side, 2]) }, (model, { x }) => ({
    probabilities: softmax(model.forward(x), 1).select(1, 1),
  }))
  const { probabilities } = await forward.run({ x })
  return { side, probabilities }
}

/** `{ side: 20 }`: what each hidden unit gives on a grid. shape: `layers` [side², units] each */
const hidden: ModelQuery<PlaygroundData> = async ({ program, config }, input) => {
  const { side, x } = gridOf('hidden', input)
  const { units } = partsOf(config.model)
  const forward = await program(`${side}`, { x: tensorType([side * side, 2]) }, (model, { x }) => {
    const outputs: Record<string, Tensor> = {}
    let values = x
    for (const [at, module] of (model as Sequential).children().entries()) {
      values = module[1].forward(values)
      // Behind each Linear its activation, and at the end a Linear alone.
      if (at % 2 === 1) outputs[`layer${(at - 1) / 2}`] = values
    }
    return outputs
  })
  const outputs = await forward.run({ x })
  return { side, layers: units.map((_, layer) => outputs[`layer${layer}`]) }
}

/** The points, and which of those for training this rank draws from. */
const points: ModelQuery<PlaygroundData> = async ({
  data: { train, test },
  slice: { start, end },
}) => ({
  train: train.at.slice(),
  trainClasses: train.classes.slice(),
  test: test.at.slice(),
  testClasses: test.classes.slice(),
  start,
  end,
})

/** Which of the points for training this rank computed in the newest step. */
const part: ModelQuery<PlaygroundData> = async (context) =>
  answerOfPart(context, 'points', (own) => ({ points: own.slice() }))

/** Points in the plane, two classes, and a small network that separates them. */
export const task: Task<PlaygroundData> = {
  meta,
  load: async ({ config: { data }, given }) => (given ? readPoints(given) : drawSplits(data)),
  model: ({ model }) => {
    const { activation, units } = partsOf(model)
    const sizes = [2, ...units]
    const hidden = units.flatMap((size, i) => [
      new Linear(sizes[i], size),
      new modules[activation](),
    ])
    return new Sequential(...hidden, new Linear(sizes[sizes.length - 1], 2))
  },
  types: (_config, _data, rows) => ({ x: tensorType([rows, 2]), y: tensorType([rows], 'i32') }),
  fill: (data, split, indices, { x, y }) => {
    const { at, classes } = data[split]
    indices.forEach((index, row) => {
      x.set(at.subarray(2 * index, 2 * index + 2), 2 * row)
      y[row] = classes[index]
    })
  },
  forward: (model, { x }) => model.forward(x),
  loss: (logits, { y }) => crossEntropy(logits, y, { count: sampleCount() }),
  measure: (logits, { y }) => topKCorrect(logits, y, 1, { count: sampleCount() }),
  queries: { boundary, points, hidden, part },
}
