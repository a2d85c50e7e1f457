import { charRnn } from '../../src/nn/char-rnn.ts'
import { cnn } from '../../src/nn/cnn.ts'
import { gpt } from '../../src/nn/gpt.ts'
import { mlp } from '../../src/nn/mlp.ts'
import type { Module } from '../../src/nn/module.ts'
import { resnet18, resnet34, resnet50 } from '../../src/nn/resnet.ts'
import type { Shape } from '../../src/util/shape.ts'

/** A built-in model: how to create it, and the shape of one sample. */
export interface ModelRecipe {
  readonly sampleShape: Shape
  readonly classes: number
  make(): Module
}

/** The function that makes a model of any size, with what the page needs of its standard size. */
const withRecipe = <Options, M extends Module>(
  model: (options?: Options) => M,
  recipe: Omit<ModelRecipe, 'make'>,
) => Object.assign((options?: Options) => model(options), { ...recipe, make: () => model() })

/**
 * The built-in models by name: each is a function that creates one, like the exports of the same names.
 *
 * State-dict keys are those of the same torch.nn.Sequential, of torchvision, or of GPT-2. `mlp` and `cnn`, which the page offers, also have
 * a standard recipe: `models.mlp.sampleShape`, `.classes` and `.make()`.
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
