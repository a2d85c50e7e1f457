import { sampleCount } from '../../src/graph/functions/linear.ts'
import { mseLoss } from '../../src/graph/functions/losses.ts'
import { Sigmoid } from '../../src/nn/activations.ts'
import { Linear, ReLU } from '../../src/nn/layers.ts'
import { Sequential } from '../../src/nn/module.ts'
import { answerOfPart, type ModelQuery, type Task } from '../../src/trainer/settings/task.ts'
import { TabringError } from '../../src/util/errors.ts'
import { tensorType } from '../../src/util/shape.ts'
import { meta } from './meta.ts'
import { type Pixels, readPicture } from './pixels.ts'
import { featuresOf, middleOf, writePlace } from './places.ts'
import { drawScene } from './scene.ts'

interface PictureData extends Pixels {
  readonly model: string
}

/** Pixels of one forward pass: a step of training waits for one pass at most. */
const tile = 4096
const widest = 512

/** `{ width: 96 }`: the network's picture at this width, as high as the original's shape wants. shape: `rgb` [height, width, 3], bytes */
const picture: ModelQuery<PictureData> = async ({ program, data }, input) => {
  const width = Number((input as { width?: unknown } | null)?.width)
  const height = Math.max(1, Math.round((width * data.height) / data.width))
  if (!(Number.isInteger(width) && width >= 1 && Math.max(width, height) <= widest)) {
    throw new TabringError(
      'config.invalid',
      `picture: ${width} x ${height} pixels are not whole, or more than ${widest} a side. Use another width.`,
    )
  }
  const features = featuresOf(data.model)
  const forward = await program('tile', { x: tensorType([tile, features]) }, (model, { x }) => ({
    colours: model.forward(x),
  }))
  const rgb = new Uint8ClampedArray(3 * width * height)
  for (let begin = 0; begin < width * height; begin += tile) {
    const count = Math.min(tile, width * height - begin)
    const x = new Float32Array(tile * features)
    for (let i = 0; i < count; i++) {
      const column = (begin + i) % width
      const row = Math.floor((begin + i) / width)
      writePlace(data.model, middleOf(column, width), middleOf(row, height), x, i)
    }
    const { colours } = await forward.run({ x })
    for (let i = 0; i < 3 * count; i++) rgb[3 * begin + i] = 255 * colours[i]
  }
  return { width, height, rgb }
}

/** The original, and which pixels this rank draws from: from number `start` up to `end`, less those held out. */
const original: ModelQuery<PictureData> = async ({ data, slice: { start, end } }) => {
  const { width, height, rgb, train } = data
  return {
    width,
    height,
    rgb: rgb.slice(),
    start: start === 0 ? 0 : train.at[start],
    end: end === train.count ? width * height : train.at[end],
  }
}

/** Which pixels this rank computed in the newest step. */
const part: ModelQuery<PictureData> = async (context) =>
  answerOfPart(context, 'pixels', (own) => ({
    pixels: own.map((index) => context.data.train.at[index]),
  }))

/** A picture, pixel by pixel, and a small network that gives the colour at a place. */
export const task: Task<PictureData> = {
  meta,
  load: async ({ config: { model }, given }) => ({
    ...(given ? readPicture(given) : drawScene()),
    model,
  }),
  model: ({ model }) =>
    new Sequential(
      new Linear(featuresOf(model), 64),
      new ReLU(),
      new Linear(64, 64),
      new ReLU(),
      new Linear(64, 3),
      new Sigmoid(),
    ),
  types: ({ model }, _data, rows) => ({
    x: tensorType([rows, featuresOf(model)]),
    colours: tensorType([rows, 3]),
  }),
  fill: ({ width, height, rgb, model, ...splits }, split, indices, { x, colours }) => {
    indices.forEach((index, row) => {
      const pixel = splits[split].at[index]
      const column = pixel % width
      writePlace(model, middleOf(column, width), middleOf((pixel - column) / width, height), x, row)
      for (let i = 0; i < 3; i++) colours[3 * row + i] = rgb[3 * pixel + i] / 255
    })
  },
  forward: (model, { x }) => model.forward(x),
  loss: (output, { colours }) => mseLoss(output, colours, { count: sampleCount() }),
  queries: { picture, original, part },
}
