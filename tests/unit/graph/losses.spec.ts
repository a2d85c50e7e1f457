import { expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile.ts'
import { crossEntropy } from '../../../src/graph/functions/losses.ts'
import { countedSamples } from '../../../src/graph/functions.ts'
import { Parameter } from '../../../src/graph/parameter.ts'
import { tensorType } from '../../../src/util/shape.ts'

// An empty share of a batch: its rank's loss and gradients must be 0, not 0 / 0, since they enter the ranks' sum.

const logits = Float32Array.of(1, 2, 3, 0.5, -1, 4)

test.each([
  ['plain', {}],
  ['with label smoothing', { labelSmoothing: 0.2 }],
])(
  'cross entropy %s: rows that do not count have no share, none at all give 0',
  async (_, options) => {
    const parameter = new Parameter([2, 3], logits)
    const program = await compile(
      ({ y }) => {
        const loss = crossEntropy(parameter, y, { ...options, count: countedSamples() })
        loss.backward()
        return { loss, gradient: parameter.grad! }
      },
      { y: tensorType([2], 'i32') },
      { device: 'cpu' },
    )
    const run = async (labels: readonly number[], scalars = {}) => {
      const { loss, gradient } = await program.run({ y: Int32Array.from(labels) }, scalars)
      return { loss: loss[0], gradient: [...gradient] }
    }
    // Until a run gives `count`, all rows count: that the second one is ignored is up to its label.
    const first = await run([2, -100])
    expect(first.loss).toBeGreaterThan(0)
    expect(first.gradient.slice(3)).toEqual([0, 0, 0])
    expect(await run([2, 1], { count: 1 })).toEqual(first)
    expect(await run([2, 1], { count: 0 })).toEqual({ loss: 0, gradient: [0, 0, 0, 0, 0, 0] })
  },
)
