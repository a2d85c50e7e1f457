import { crossEntropy, sampleCount } from '../../src/graph/functions/linear.ts'
import { gpt } from '../../src/nn/gpt.ts'
import type { Task } from '../../src/trainer/settings/task.ts'
import { tensorType } from '../../src/util/shape.ts'
import { meta } from './meta.ts'
import { attention, part, probabilities, sample, vocabulary } from './queries.ts'
import { blockSize, decodeText, fillWindow, readText, type TextData } from './tokens.ts'

/** Windows of a text; the model says at each character which one follows. */
export const task: Task<TextData> = {
  meta,
  load: async ({ given }) =>
    readText(given ? decodeText(given) : (await import('./story.ts')).story),
  model: (_config, { symbols }) =>
    gpt({ vocabSize: symbols.length, blockSize, layers: 2, heads: 4, width: 64 }),
  types: (_config, _data, rows) => ({
    x: tensorType([rows, blockSize], 'i32'),
    y: tensorType([rows, blockSize], 'i32'),
  }),
  fill: (data, split, indices, { x, y }) =>
    indices.forEach((index, row) => {
      const [start, end] = [row * blockSize, (row + 1) * blockSize]
      fillWindow(data[split], index, x.subarray(start, end), y.subarray(start, end))
    }),
  // The classes are axis 1, so that the first axis is the windows, which are what counts.
  forward: (model, { x }) => model.forward(x).permute(0, 2, 1),
  loss: (logits, { y }) => crossEntropy(logits, y, { count: sampleCount() }),
  queries: { vocabulary, sample, probabilities, attention, part },
}
