import { expect, test } from 'vitest'
import { ExactStep } from '../../../src/ddp/exact/exact-step.ts'
import { judge } from '../../../src/ddp/exact/exponents.ts'
import { crossEntropy, sampleCount } from '../../../src/graph/functions/linear.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { ExactOptimizer, type ExactSettings } from '../../../src/optim/exact/exact-optimizer.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { VirtualWorkers } from '../../../src/trainer/evaluate/virtual-workers.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { onRanks, resultOf } from '../../support/ranks-of-one.ts'

// Blocks of 256 gradients that are all zero, and parameters without any, next to others that are not.

const wide = 300
const batchSize = 8
const classes = 2
/** Columns of the input that are zero: of the weight, [2, 300], the first block has no others. */
const dark = 256
/** What the weights begin with in those columns, where they change no output. */
const resting = 3
const sgd = { kind: 'sgd', lr: 0.5, momentum: 0 } as const
const adamw = {
  kind: 'adamw',
  lr: 0.5,
  betas: [0.9, 0.999],
  eps: 1e-8,
  weightDecay: 0.25,
} as const

/** One layer that is trained, and one that no loss depends on, in four virtual workers of two samples of class 0. */
async function train(group: ProcessGroup, settings: ExactSettings, columns: readonly number[][]) {
  const model = new Linear(wide, classes)
  const unused = new Linear(1, 1)
  const isDark = (i: number) => i % wide < dark
  model.weight.assign(
    Float32Array.from({ length: classes * wide }, (_, i) => (isDark(i) ? resting : 0)),
  )
  model.bias!.assign(new Float32Array(classes))
  for (const parameter of unused.parameters()) parameter.assign(Float32Array.of(resting))
  const optimizer = new ExactOptimizer([...model.parameters(), ...unused.parameters()], settings)
  const config = { seed: 0, batchSize, virtualWorkers: 4 }
  const workers = new VirtualWorkers(config, batchSize, group.rank, group.size)
  const step = await ExactStep.create({
    runtime: new ReferenceRuntime(),
    group,
    optimizer,
    workers,
    virtualWorkers: 4,
    forward: ({ x, y }) => ({ loss: crossEntropy(model.forward(x), y, { count: sampleCount() }) }),
    types: { x: tensorType([2, wide]), y: tensorType([2], 'i32') },
    stepsDone: 0,
  })
  for (const row of columns) {
    // Ranks may be assigned others from step to step.
    const count = workers.count * workers.rows
    const x = Float32Array.from({ length: count * wide }, (_, i) => row[i % wide])
    await step.run({ x, y: new Int32Array(count) }, { count })
  }
  const [weight, bias, ...others] = await optimizer.read()
  return { weight: [...weight], bias: [...bias], others, optimizer }
}

/** The input of every sample: zero in the dark columns, unless they are `lit`. */
const rowOf = (lit: number) => Array.from({ length: wide }, (_, i) => (i < dark ? lit : 0.25))

/** SGD by plain arithmetic, in float64: all samples are the same, so that their mean is one of them. */
function expected(rows: readonly number[][]) {
  const weight = Array.from({ length: classes * wide }, (_, i) => (i % wide < dark ? resting : 0))
  const bias = [0, 0]
  for (const row of rows) {
    const logits = bias.map((own, k) =>
      row.reduce((sum, x, i) => sum + x * weight[k * wide + i], own),
    )
    const share = logits.map(
      (logit) => Math.exp(logit) / (Math.exp(logits[0]) + Math.exp(logits[1])),
    )
    for (const [k, own] of share.entries()) {
      const gradient = own - (k === 0 ? 1 : 0)
      bias[k] -= sgd.lr * gradient
      for (const [i, x] of row.entries()) weight[k * wide + i] -= sgd.lr * gradient * x
    }
  }
  return { weight, bias }
}

test.each([1, 2, 3])(
  'an exact step leaves weights as they are where a block of gradients is zero, on %i ranks',
  async (size) => {
    for (const one of await onRanks(size, (group) => train(group, sgd, [rowOf(0)]))) {
      const { weight, bias } = resultOf(one)
      // Powers of two: both ways of adding up are exact.
      const plain = expected([rowOf(0)])
      expect(weight).toEqual(plain.weight)
      expect(bias).toEqual(plain.bias)
      expect(weight.slice(0, dark)).toEqual(Array(dark).fill(resting))
      expect(weight[dark]).toBe(0.0625)
    }
  },
)

test('a block that was zero for many steps has right gradients in the first step in which it is not', async () => {
  const rows = [...Array.from({ length: 30 }, () => rowOf(0)), rowOf(0.5)]
  const [one, ...more] = (await onRanks(3, (group) => train(group, sgd, rows))).map(resultOf)
  for (const { weight } of more) expect(weight).toEqual(one.weight)
  const plain = expected(rows)
  for (const [i, value] of plain.weight.entries()) expect(one.weight[i]).toBeCloseTo(value, 5)
  // Both moved, so it is no comparison of what has never changed.
  expect(plain.weight[0]).not.toBeCloseTo(resting, 3)
})

test('with AdamW a zero gradient decays a weight and no more, and a parameter without gradient stays', async () => {
  const [one] = (await onRanks(1, (group) => train(group, adamw, [rowOf(0), rowOf(0)]))).map(
    resultOf,
  )
  // 1 - lr * weightDecay, twice; moments of zero divide by eps alone.
  const decayed = resting * 0.875 ** 2
  expect(one.weight.slice(0, dark)).toEqual(Array(dark).fill(decayed))
  expect(one.weight.slice(wide, wide + dark)).toEqual(Array(dark).fill(decayed))
  for (const values of one.others) expect([...values]).toEqual([resting])
  const { state } = await one.optimizer.stateDict()
  expect(Object.keys(state)).toEqual(['0', '1'])
})

test('the exponent of a zero block falls by one a step, down to 12 below the largest', () => {
  // Four virtual workers of zeros, and a block whose sums are below 2^29: at a shift of 19 bits its magnitudes are below 2^10.
  const marks = Int32Array.of(4, 2 ** 21)
  let exponents = Int32Array.of(8, 8)
  const seen: number[] = []
  for (let step = 0; step < 20; step++) {
    const { exponents: next, isSaturated } = judge(marks, exponents)
    expect(isSaturated).toBe(false)
    seen.push(next[0])
    exponents = Int32Array.of(next[0], 8)
  }
  expect(seen.slice(0, 3)).toEqual([7, 6, 5])
  expect(seen.at(-1)).toBe(10 - 12)
})

test('where all blocks are zero, exponents fall and stop at the least that a float has', () => {
  let exponents = Int32Array.of(8, 8)
  for (let step = 0; step < 200; step++) ({ exponents } = judge(Int32Array.of(4, 0), exponents))
  expect([...exponents]).toEqual([-99, -99])
})
