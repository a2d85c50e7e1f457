import { describe, expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { sampleCount, stepScalar } from '../../../src/graph/functions/linear.ts'
import * as losses from '../../../src/graph/functions/losses.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import { MSELoss } from '../../../src/nn/losses.ts'
import { tensorType } from '../../../src/util/shape.ts'

// An empty share of a batch: its rank's loss and gradients must be 0, not 0 / 0, since they enter the ranks' sum.

const { accuracy, crossEntropy } = losses

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
        const loss = crossEntropy(parameter, y, { ...options, count: sampleCount() })
        loss.backward()
        return { loss, gradient: parameter.grad! }
      },
      { y: tensorType([2], 'i32') },
      { device: 'reference' },
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

describe('a count', () => {
  const { accuracy: _, checkLoss: __, ...all } = losses
  const probabilities = Float32Array.of(0.2, 0.7, 0.1, 0.3, 0.3, 0.4, 0.9, 0.05, 0.05)
  const others = Float32Array.of(0.3, 0.3, 0.4, 0.1, 0.8, 0.1, 0.2, 0.2, 0.6)
  type Named = 'mseLoss' | 'l1Loss' | 'huberLoss' | 'smoothL1Loss' | 'binaryCrossEntropy'
  const names: readonly (Named | 'binaryCrossEntropyWithLogits' | 'klDiv' | 'crossEntropy')[] = [
    'mseLoss',
    'l1Loss',
    'huberLoss',
    'smoothL1Loss',
    'binaryCrossEntropy',
    'binaryCrossEntropyWithLogits',
    'klDiv',
    'crossEntropy',
  ]

  /** Loss and gradient of the first `rows` samples alone, or of all with a `count`. */
  async function run(
    name: (typeof names)[number],
    rows: number,
    reduction: 'mean' | 'sum',
    scalars?: Record<string, number>,
  ) {
    const parameter = new Parameter([rows, 3], probabilities.slice(0, rows * 3))
    const program = await compile(
      ({ target }) => {
        const options = { reduction, ...(scalars && { count: sampleCount() }) }
        const loss = all[name](parameter, target, options)
        loss.backward()
        return { loss, gradient: parameter.grad! }
      },
      { target: tensorType([rows, 3]) },
      { device: 'reference' },
    )
    const { loss, gradient } = await program.run({ target: others.slice(0, rows * 3) }, scalars)
    program.destroy()
    return {
      loss: loss[0], // Without signs of zeros.
      gradient: [...gradient].map((value) => value + 0),
    }
  }

  describe.each(names)('of %s', (name) => {
    test.each(['mean', 'sum'] as const)(
      '%s: the rows behind it weigh nothing',
      async (reduction) => {
        const alone = await run(name, 2, reduction)
        const counted = await run(name, 3, reduction, { count: 2 })
        expect(counted.loss).toBeCloseTo(alone.loss, 6)
        expect(counted.gradient.slice(6)).toEqual([0, 0, 0])
        for (const [i, value] of alone.gradient.entries())
          expect(counted.gradient[i]).toBeCloseTo(value, 6)
        const whole = await run(name, 3, reduction)
        expect(whole.loss).not.toBeCloseTo(alone.loss, 4)
        expect((await run(name, 3, reduction, {})).loss).toBeCloseTo(whole.loss, 6)
        expect(await run(name, 3, reduction, { count: 0 })).toEqual({
          loss: 0,
          gradient: Array(9).fill(0),
        })
      },
    )
  })

  test("of klDiv's batchmean divides by the rows that count; unreduced losses are 0 behind it", async () => {
    const program = await compile(
      ({ x, y }) => {
        const count = sampleCount()
        return {
          batchmean: losses.klDiv(x, y, { reduction: 'batchmean', count }),
          two: losses.klDiv(x.narrow(0, 0, 2), y.narrow(0, 0, 2), { reduction: 'batchmean' }),
          each: losses.mseLoss(x, y, { reduction: 'none', count }),
          module: new MSELoss({ reduction: 'none' }).forward(x, y, count),
          scalar: losses.mseLoss(x.sum(), y.sum(), { reduction: 'none', count }),
        }
      },
      { x: tensorType([3, 3]), y: tensorType([3, 3]) },
      { device: 'reference' },
    )
    const got = await program.run({ x: probabilities, y: others }, { count: 2 })
    expect(got.batchmean[0]).toBeCloseTo(got.two[0], 6)
    expect([...got.each].slice(6)).toEqual([0, 0, 0])
    expect(got.each[5]).toBeCloseTo(0.09, 6)
    expect(got.module).toEqual(got.each)
    expect(got.scalar.length).toBe(1)
    program.destroy()
  })
})

describe('accuracy', () => {
  // 4 rows of 3 classes; torch.topk: the first class of rows 0 and 1 is largest, of row 2 second, of row 3 last.
  const output = Float32Array.of(3, 2, 1, 9, 0, 1, 2, 3, 1, 0, 1, 2)
  const target = Int32Array.of(0, 0, 0, 0)
  const types = { output: tensorType([4, 3]), target: tensorType([4], 'i32') }

  test('is the percentage of all rows', async () => {
    const program = await compile(
      ({ output, target }) => {
        const [first, second] = accuracy(output, target, { topk: [1, 2] })
        return { first, second }
      },
      types,
      { device: 'reference' },
    )
    const { first, second } = await program.run({ output, target })
    expect([first[0], second[0]]).toEqual([50, 75])
    program.destroy()
  })

  test('counts of equal outputs that of the lower class as the larger', async () => {
    const program = await compile(
      ({ output, target }) => {
        const [first, second] = accuracy(output, target, { topk: [1, 2] })
        return { first, second }
      },
      types,
      { device: 'reference' },
    )
    const equal = Float32Array.of(1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1)
    const { first, second } = await program.run({
      output: equal,
      target: Int32Array.of(0, 1, 2, 2),
    })
    expect([first[0], second[0]]).toEqual([25, 75])
    program.destroy()
  })

  test.each([0, 4, 1.5, -1, '2'])('refuses topk %j of 3 classes', async (topk) => {
    const compiling = compile(
      ({ output, target }) => ({ a: accuracy(output, target, { topk: topk as number })[0] }),
      types,
      { device: 'reference' },
    )
    await expect(compiling).rejects.toMatchObject({
      code: 'shape.unsupported',
      message: `accuracy: topk must be from 1 to the number of classes, 3, got ${JSON.stringify(topk)}. Leave it out, or choose a smaller one.`,
    })
  })

  test('of no rows is 0; one k needs no list', async () => {
    const program = await compile(
      ({ output, target }) => ({ none: accuracy(output, target, { topk: 2 })[0] }),
      { output: tensorType([0, 3]), target: tensorType([0], 'i32') },
      { device: 'reference' },
    )
    const none = await program.run({ output: new Float32Array(), target: new Int32Array() })
    expect([...none.none]).toEqual([0])
    program.destroy()
  })

  test('with a count is that of the rows that count: all of them in a run that gives none, also after a short batch', async () => {
    const program = await compile(
      ({ output, target }) => {
        const [first, second] = accuracy(output, target, { topk: [1, 2], count: sampleCount() })
        return { first, second, loss: crossEntropy(output, target, { count: sampleCount() }) }
      },
      types,
      { device: 'reference' },
    )
    const run = async (scalars = {}) => {
      const { first, second, loss } = await program.run({ output, target }, scalars)
      return [first[0], second[0], loss[0]]
    }
    const full = await run()
    expect(full.slice(0, 2)).toEqual([50, 75])
    expect((await run({ count: 3 })).slice(0, 2)).toEqual([Math.fround(200 / 3), 100])
    expect(await run()).toEqual(full)
    expect(await run({ count: 4 })).toEqual(full)
    expect(await run({ count: 1 })).toEqual([100, 100, expect.closeTo(0.40760597, 6)])
    expect(await run()).toEqual(full)
    expect(await run({ count: 0 })).toEqual([0, 0, 0])
    program.destroy()
  })
})

test('a step scalar that a run does not give has its initial value, whatever runs before gave', async () => {
  const program = await compile(
    ({ x }) => ({ y: x.mul(stepScalar('factor', 2)) }),
    { x: tensorType([1]) },
    { runtime: new ReferenceRuntime() },
  )
  const run = async (scalars = {}) => (await program.run({ x: Float32Array.of(3) }, scalars)).y[0]
  expect(await run()).toBe(6)
  expect(await run({ factor: 5 })).toBe(15)
  expect(await run()).toBe(6)
  await expect(run({ other: 1 })).rejects.toThrow(/no step scalar "other"; this program has factor/)
  program.destroy()
})
