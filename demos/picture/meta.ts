import type { DemoMeta } from '../../src/train/demo-meta.ts'

/** A picture that a person gives: 8 bytes of header, and as many pixels a side at most. */
export const mostPixelsASide = 256

export const meta: DemoMeta = {
  title: 'Picture',
  sentence: 'A small network learns a picture: it is asked for the colour at a place.',
  models: {
    waves: { words: 'waves: 64 waves of the place, 64–64–64–3, ReLU', lr: 1e-2 },
    place: { words: 'place: x and y alone, 2–64–64–3, ReLU', lr: 1e-2 },
  },
  data: { harbour: 'a boat at sunset (built in)' },
  given: {
    words: 'a picture (width, height, RGB bytes)',
    mostBytes: 8 + 3 * mostPixelsASide * mostPixelsASide,
  },
  metric: { name: 'squared error', unit: '', better: 'lower' },
  defaults: { batchSize: 512, epochs: 40 },
  expected: [{ config: { data: 'harbour', seed: 0 }, atMost: 0.004, withinSteps: 300 }],
}
