import type { DemoMeta } from '../../src/trainer/settings/demo-meta.ts'

const own = {
  title: 'Playground',
  sentence: 'A small network learns the boundary between two classes of points in the plane.',
  // networks.ts reads the names: the activation, and the hidden layers where they are not 16-16. Sigmoids are flat, so their steps are larger.
  models: {
    tanh: { words: 'tanh: 2–16–16–2', lr: 0.02 },
    'tanh-4': { words: 'tanh: 2–4–2', lr: 0.02 },
    'tanh-8-8': { words: 'tanh: 2–8–8–2', lr: 0.02 },
    'tanh-32-32': { words: 'tanh: 2–32–32–2', lr: 0.02 },
    'tanh-160-160-160': { words: 'tanh: 2–160–160–160–2', lr: 0.003 },
    relu: { words: 'ReLU: 2–16–16–2', lr: 0.02 },
    'relu-4': { words: 'ReLU: 2–4–2', lr: 0.02 },
    'relu-8-8': { words: 'ReLU: 2–8–8–2', lr: 0.02 },
    'relu-32-32': { words: 'ReLU: 2–32–32–2', lr: 0.02 },
    'relu-160-160-160': { words: 'ReLU: 2–160–160–160–2', lr: 0.003 },
    sigmoid: { words: 'sigmoid: 2–16–16–2', lr: 0.05 },
    'sigmoid-4': { words: 'sigmoid: 2–4–2', lr: 0.05 },
    'sigmoid-8-8': { words: 'sigmoid: 2–8–8–2', lr: 0.05 },
    'sigmoid-32-32': { words: 'sigmoid: 2–32–32–2', lr: 0.05 },
    'sigmoid-160-160-160': { words: 'sigmoid: 2–160–160–160–2', lr: 0.005 },
  },
  data: {
    spiral: 'two spirals',
    circles: 'a disc in a ring',
    xor: 'four quarters',
    moons: 'two moons',
  },
  samples: { spiral: 480, circles: 480, xor: 480, moons: 480 },
  given: {
    words: 'points (x, y and class as float32)',
    maxBytes: 12 * 4000,
    ask: 'draw at least 10 points',
  },
  metric: { name: 'accuracy', unit: 'share', better: 'higher' },
  reading: { as: 'right', of: 'point' },
  defaults: { batchSize: 96, epochs: 100 },
  pace: 60,
  controls: ['model', 'data', 'lr', 'strategy', 'partition', 'maxStepsPerSec'],
  expected: [
    {
      config: { data: 'spiral', seed: 0 },
      atLeast: 0.95,
      withinSteps: 500,
      curve: {
        losses: [0.62, 0.61, 0.58, 0.53, 0.42, 0.3, 0.22, 0.11, 0.049, 0.031],
        metrics: [0.63, 0.64, 0.63, 0.67, 0.78, 0.86, 0.88, 0.97, 0.99, 0.99],
      },
    },
  ],
} satisfies DemoMeta

export const meta: DemoMeta = own

export type Shape = keyof typeof own.data
