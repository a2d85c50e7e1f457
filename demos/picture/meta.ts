import type { DemoMeta } from '../../src/trainer/settings/demo-meta.ts'

/** A picture that a person gives: 8 bytes of header, and as many pixels a side at most. */
export const maxPixelsASide = 256

const own = {
  title: 'Picture',
  sentence: 'A small network learns a picture: given a place, it answers with the colour.',
  models: {
    waves: { words: 'waves: 64 waves of the place, 64–64–64–3, ReLU', lr: 1e-2 },
    place: { words: 'place: x and y alone, 2–64–64–3, ReLU', lr: 1e-2 },
  },
  data: { harbour: 'a boat at sunset (built in)' },
  samples: { harbour: 8294 },
  given: {
    words: 'a picture (width, height, RGB bytes)',
    maxBytes: 8 + 3 * maxPixelsASide * maxPixelsASide,
    ask: 'choose a picture, or drop one',
  },
  metric: { name: 'squared error', unit: '', better: 'lower', ofLoss: 1 },
  reading: { as: 'off', of: 'colour' },
  defaults: { batchSize: 512, epochs: 40 },
  pace: 60,
  expected: [
    {
      config: { data: 'harbour', seed: 0 },
      atMost: 0.004,
      withinSteps: 300,
      curve: {
        losses: [0.028, 0.0082, 0.0058, 0.0046, 0.0036, 0.0033, 0.0028, 0.0027, 0.0025, 0.0022],
      },
    },
  ],
} satisfies DemoMeta

export const meta: DemoMeta = own

export type PictureModel = keyof typeof own.models
