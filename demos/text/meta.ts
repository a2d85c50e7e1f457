import type { DemoMeta } from '../../src/trainer/settings/demo-meta.ts'

export const meta: DemoMeta = {
  title: 'Text',
  sentence: 'A small GPT learns a text character by character, and writes as it learns.',
  models: {
    gpt: { words: 'gpt: 2 layers, 4 heads, width 64, context of 32 characters', lr: 3e-3 },
  },
  data: { story: 'a story about tabs (built in)' },
  samples: { story: 575 },
  given: {
    words: 'a text in UTF-8',
    maxBytes: 1_000_000,
    ask: 'paste a text or drop a file',
  },
  metric: { name: 'loss', unit: 'bits per character', better: 'lower', ofLoss: 1 / Math.LN2 },
  reading: { as: 'choices', of: 'letter' },
  defaults: { batchSize: 16, epochs: 15 },
  expected: [
    {
      config: { data: 'story', seed: 0 },
      atMost: 2.6,
      withinSteps: 120,
      curve: { losses: [3, 2.5, 2.2, 2.1, 2, 1.9, 1.8, 1.7, 1.7, 1.5] },
    },
  ],
}
