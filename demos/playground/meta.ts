import type { DemoMeta } from '../../src/train/demo-meta.ts'

export const meta: DemoMeta = {
  title: 'Playground',
  sentence:
    'Points in the plane, and the boundary between two classes that a small network learns.',
  models: { tanh: { words: 'tanh: 2–16–16–2', lr: 0.02 } },
  data: {
    spiral: 'two spirals',
    circles: 'a disc in a ring',
    xor: 'four quarters',
    moons: 'two moons',
  },
  given: { words: 'points (x, y and class as float32)', mostBytes: 12 * 4000 },
  metric: { name: 'accuracy', unit: 'share', better: 'higher' },
  defaults: { batchSize: 96, epochs: 100 },
  expected: [{ config: { data: 'spiral', seed: 0 }, atLeast: 0.95, withinSteps: 500 }],
}
