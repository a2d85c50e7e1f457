import { ShapeError } from '../util/errors.ts'
import { checkOptions } from '../util/options.ts'
import type { Shape } from '../util/shape.ts'
import { charRnn } from './char-rnn.ts'
import { Conv2d } from './convolution.ts'
import { gpt } from './gpt.ts'
import { Flatten, Linear, ReLU } from './layers.ts'
import { type Module, Sequential } from './module.ts'
import { MaxPool2d } from './pooling.ts'
import { resnet18, resnet34, resnet50 } from './resnet.ts'

/** A built-in model: how to make it, and the shape of one sample that it takes. */
export interface ModelRecipe {
  readonly sampleShape: Shape
  readonly classes: number
  make(): Module
}

/** Linear layers with ReLU between them. The parts of `sizes` are the elements of a sample, of each hidden layer and of the output. */
export function mlp(options: { sizes?: readonly number[] } = {}): Sequential {
  const { sizes = [784, 256, 10] } = checkOptions('mlp', options, { sizes: true })
  if (sizes.length < 2) {
    throw new ShapeError(
      'shape.unsupported',
      `mlp: expected two sizes or more, got [${sizes.join(', ')}]. Give those of input and output, and of hidden layers between them.`,
    )
  }
  const layers = sizes.slice(1).map((size, i) => new Linear(sizes[i], size))
  return new Sequential(...layers.flatMap((layer, i) => (i === 0 ? [layer] : [new ReLU(), layer])))
}

export interface CnnOptions {
  /** Of a sample: channels, height, width. default [1, 28, 28] */
  sampleShape?: readonly [channels: number, height: number, width: number]
  /** Channels of each convolution. default [16, 32] */
  channels?: readonly number[]
  /** default 10 */
  classes?: number
}

/** 3x3 convolutions, each with ReLU and 2x2 pooling, then a linear layer. */
export function cnn(options: CnnOptions = {}): Sequential {
  const known = { sampleShape: true, channels: true, classes: true } as const
  const checked = checkOptions('cnn', options, known)
  const { sampleShape = [1, 28, 28], channels = [16, 32], classes = 10 } = checked
  const [depth, height, width] = sampleShape
  const halved = (size: number) => Math.floor(size / 2 ** channels.length)
  const stages = channels.flatMap((count, i) => [
    new Conv2d(i === 0 ? depth : channels[i - 1], count, 3, { padding: 1 }),
    new ReLU(),
    new MaxPool2d(2),
  ])
  const features = (channels.at(-1) ?? depth) * halved(height) * halved(width)
  return new Sequential(...stages, new Flatten(), new Linear(features, classes))
}

/** The function that makes a model of any size, with what the page needs of its standard size. */
const withRecipe = <Options, M extends Module>(
  model: (options?: Options) => M,
  recipe: Omit<ModelRecipe, 'make'>,
) => Object.assign((options?: Options) => model(options), { ...recipe, make: () => model() })

/**
 * The built-in models by name: each is a function that makes one, as those exported by the same names.
 *
 * State-dict keys are those of the same torch.nn.Sequential, of torchvision, or of GPT-2. `mlp` and `cnn`, which the page offers, have their
 * recipe at the standard size besides: `models.mlp.sampleShape`, `.classes` and `.make()`.
 */
export const models = {
  /** `models.mlp()`: 784-256-10 with ReLU. */
  mlp: withRecipe(mlp, { sampleShape: [784], classes: 10 }),
  /** `models.cnn()`: two 3x3 convolutions to 16 and 32 channels, each with ReLU and 2x2 pooling, then a linear layer. */
  cnn: withRecipe(cnn, { sampleShape: [1, 28, 28], classes: 10 }),
  resnet18,
  resnet34,
  resnet50,
  /** A language model of the given size: `models.gpt({ vocabSize: 65, blockSize: 64, layers: 2, heads: 4, width: 64 })`. */
  gpt,
  /** An LSTM over characters: `models.charRnn(65)`. */
  charRnn,
} as const satisfies Readonly<Record<string, (...args: never[]) => Module>>
