import { type DataSplits, fillBatch } from '../../src/data/dataset.ts'
import { softmax } from '../../src/graph/functions/activations.ts'
import { crossEntropy } from '../../src/graph/functions/linear.ts'
import type { TrainConfig } from '../../src/trainer/settings/config.ts'
import { answerOfPart, type ModelQuery, type Task } from '../../src/trainer/settings/task.ts'
import { TabringError } from '../../src/util/errors.ts'
import type { Shape } from '../../src/util/shape.ts'
import { tensorType } from '../../src/util/shape.ts'

const pixels = 28 * 28
/** Filters of a wide layer that are shown. */
const maxFilters = 32
/** Held-out samples among which mistakes are looked for, and how many of these go through the model at once. */
const maxSamples = 512
const rows = 128
const maxMistakes = 8
/** Samples of a rank's part of a step that are shown. */
const maxOfPart = 12

/** What the page may ask to see of a digits model that takes samples of this shape. */
export const queriesOf = (
  sampleShape: (config: TrainConfig) => Shape,
): Task<DataSplits>['queries'] => {
  /** `[784 numbers from 0 to 1]`: the probability of each class. shape: `probabilities` [10] */
  const classify: ModelQuery<DataSplits> = async ({ config, program }, input) => {
    const x = Float32Array.from(Array.isArray(input) ? input : [])
    if (x.length !== pixels || !x.every((value) => value >= 0 && value <= 1)) {
      throw new TabringError(
        'config.invalid',
        `classify: these ${x.length} values are not ${pixels} numbers from 0 to 1. Draw the digit again.`,
      )
    }
    const types = { x: tensorType([1, ...sampleShape(config)]) }
    const forward = await program('', types, (model, { x }) => ({
      probabilities: softmax(model.forward(x), 1),
    }))
    return forward.run({ x })
  }

  /** The first layer's weights, the first ones of a wide layer. shape: `weights` [count, height, width] */
  const filters: ModelQuery<DataSplits> = async ({ stateDict }) => {
    // Both models begin with the layer that sees the pixels.
    const { shape, data } = (await stateDict())['0.weight']
    const [height, width] = shape.length === 4 ? shape.slice(2) : [28, 28]
    const count = Math.min(shape[0], maxFilters)
    const weights = Float32Array.from(data.subarray(0, count * height * width))
    return { of: shape[0], count, height, width, weights }
  }

  /** Of the first held-out samples those that the model takes for something else, the greatest loss first. shape: `images` [count, 784], the others [count] */
  const mistakes: ModelQuery<DataSplits> = async ({ config, data: { test }, program }) => {
    const types = {
      x: tensorType([rows, ...sampleShape(config)]),
      y: tensorType([rows], 'i32'),
    }
    const forward = await program('', types, (model, { x, y }) => {
      const logits = model.forward(x)
      return {
        losses: crossEntropy(logits, y, { reduction: 'none' }),
        probabilities: softmax(logits, 1),
      }
    })
    const checked = Math.min(test.count, maxSamples)
    const found: { sample: number; predicted: number; probability: number; loss: number }[] = []
    for (let begin = 0; begin < checked; begin += rows) {
      const count = Math.min(rows, checked - begin)
      const x = new Float32Array(rows * pixels)
      const y = new Int32Array(rows)
      fillBatch(
        test,
        Array.from({ length: count }, (_, i) => begin + i),
        x,
        y,
      )
      const { losses, probabilities } = await forward.run({ x, y })
      for (let row = 0; row < count; row++) {
        const own = [...probabilities.subarray(10 * row, 10 * row + 10)]
        const probability = Math.max(...own)
        const predicted = own.indexOf(probability)
        if (predicted !== y[row])
          found.push({ sample: begin + row, predicted, probability, loss: losses[row] })
      }
    }
    const worst = found.sort((a, b) => b.loss - a.loss).slice(0, maxMistakes)
    const images = new Uint8Array(worst.length * pixels)
    for (const [i, { sample }] of worst.entries())
      images.set(test.images.subarray(sample * pixels, (sample + 1) * pixels), i * pixels)
    return {
      checked,
      wrong: found.length,
      images,
      labels: Uint8Array.from(worst, ({ sample }) => test.labels[sample]),
      predicted: Uint8Array.from(worst, ({ predicted }) => predicted),
      probabilities: Float32Array.from(worst, ({ probability }) => probability),
    }
  }

  /** The first images of this rank's part of the newest step. shape: `images` [up to 12, 784] */
  const part: ModelQuery<DataSplits> = async (context) =>
    answerOfPart(context, 'digits', (own) => {
      const { train } = context.data
      const shown = own.subarray(0, maxOfPart)
      const images = new Uint8Array(shown.length * pixels)
      // The step has read them, so they are drawn.
      for (const [i, sample] of shown.entries())
        images.set(train.images.subarray(sample * pixels, (sample + 1) * pixels), i * pixels)
      return { images, labels: Uint8Array.from(shown, (sample) => train.labels[sample]) }
    })

  return { classify, filters, mistakes, part }
}
