import type { Shape } from '../util/shape.ts'
import { Conv2d } from './convolution.ts'
import { gpt } from './gpt.ts'
import { Flatten, Linear, ReLU } from './layers.ts'
import { type Module, Sequential } from './module.ts'
import { MaxPool2d } from './pooling.ts'

/** A built-in model: how to make it, and the shape of one sample that it takes. */
export interface ModelRecipe {
  readonly sampleShape: Shape
  readonly classes: number
  make(): Module
}

/** The built-in models by name; state-dict keys are those of the same torch.nn.Sequential, or of GPT-2. */
export const models: Readonly<Record<'mlp' | 'cnn', ModelRecipe> & { gpt: typeof gpt }> = {
  /** 784-256-10 with ReLU. */
  mlp: {
    sampleShape: [784],
    classes: 10,
    make: () => new Sequential(new Linear(784, 256), new ReLU(), new Linear(256, 10)),
  },
  /** Two 3x3 convolutions to 16 and 32 channels, each with ReLU and 2x2 pooling, then a linear layer. */
  cnn: {
    sampleShape: [1, 28, 28],
    classes: 10,
    make: () =>
      new Sequential(
        new Conv2d(1, 16, 3, { padding: 1 }),
        new ReLU(),
        new MaxPool2d(2),
        new Conv2d(16, 32, 3, { padding: 1 }),
        new ReLU(),
        new MaxPool2d(2),
        new Flatten(),
        new Linear(1568, 10),
      ),
  },
  /** A language model of the given size: `models.gpt({ vocabSize: 65, blockSize: 64, layers: 2, heads: 4, width: 64 })`. */
  gpt,
}
