import type { DemoMeta } from '../../src/trainer/settings/demo-meta.ts'

/** Of four files with gzip: MNIST's have 11.6 MB, Fashion-MNIST's 30.9 MB. */
export const maxGivenBytes = 32 * 2 ** 20

export const meta: DemoMeta = {
  title: 'Digits',
  sentence: 'Handwritten digits in MNIST’s format, drawn by the program or read from files.',
  models: {
    mlp: { words: 'mlp: 784–256–10, ReLU', lr: 1e-3 },
    cnn: { words: 'cnn: two 3×3 convolutions, 16 and 32', lr: 3e-3 },
    'cnn-bn': { words: 'cnn-bn: the same with batch normalization', lr: 3e-3 },
  },
  data: { digits: 'drawn digits (built in)' },
  samples: { digits: 8000 },
  address: {
    words: 'IDX files at an address…',
    hint: 'Address of a folder with four IDX files in MNIST’s format. npm start -- --data DIR serves one at /data/.',
  },
  given: {
    words: 'four IDX files, packed',
    maxBytes: maxGivenBytes,
    ask: 'choose or drop the four files',
  },
  metric: { name: 'accuracy', unit: 'share', better: 'higher' },
  reading: { as: 'right', of: 'digit' },
  expected: [
    {
      config: { model: 'mlp', epochs: 1, seed: 0 },
      atLeast: 0.9,
      withinSteps: 125,
      curve: {
        losses: [2, 1.3, 0.84, 0.63, 0.5, 0.39, 0.35, 0.26, 0.28, 0.25],
        metrics: [0.53, 0.79, 0.83, 0.85, 0.85, 0.92, 0.92, 0.93, 0.93, 0.94],
      },
    },
  ],
}
