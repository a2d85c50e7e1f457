import { describe, expect, test } from 'vitest'
import { ops } from '../../../src/kernels/index.ts'
import { cases } from '../../../src/kernels/map/cases.ts'
import type { Case, Op } from '../../../src/kernels/op.ts'
import { scalarFunctions } from '../../../src/kernels/steps.ts'
import { countElements } from '../../../src/util/shape.ts'

// What every op's list of cases must hold, so that a new op cannot come without its edges.

/** Kernels of one thread over a few numbers. */
const ofPairs = { empty: 'its tensors are pairs', one: 'its tensors are pairs' }

/** Where an edge cannot occur, and why. */
const exempt: Record<string, Partial<Record<'odd' | 'empty' | 'huge' | 'one', string>>> = {
  fromScalar: {
    odd: 'its output is one element',
    empty: 'its output is one element',
    huge: 'its input is the scalars buffer',
  },
  joinStats: ofPairs,
  clipFactor: { empty: ofPairs.empty },
  withoutFactor: ofPairs,
  unscale: ofPairs,
  settle: { empty: ofPairs.empty },
  scalerUpdate: ofPairs,
  batchNorm: { empty: 'statistics of nothing are refused' },
  attentionGrad: {
    huge: 'exponentials of huge scores overflow beside an lse that is not theirs; the goldens hold large scores',
  },
  rotary: { one: 'elements turn in pairs' },
  integerMap: { huge: 'its numbers are integers, which cases draw up to 2^31' },
  syncRanks: { empty: 'ranks that have nothing to say do not meet' },
  trackStatistics: { empty: 'layers have channels' },
  batchNormTracked: { empty: 'statistics of nothing are refused' },
}

/** Element counts of a case's inputs and outputs. */
const allCounts = (op: Op, { inputs, attrs }: Case): number[] =>
  [...inputs, ...op.infer(inputs, attrs)].map(({ shape }) => countElements(shape))

test('names are unique, and so are the names of variants and cases', () => {
  const isUnique = (names: string[]) => new Set(names).size === names.length
  expect(isUnique(ops.map(({ name }) => name))).toBe(true)
  for (const op of ops) {
    expect(isUnique(op.variants.map(({ name }) => name)), `variants of ${op.name}`).toBe(true)
    expect(isUnique(op.cases.map(({ name }) => name)), `cases of ${op.name}`).toBe(true)
    expect(op.variants[0].name).toBe('naive')
    expect(op.variants[0].when, `naive ${op.name} must always be possible`).toBeUndefined()
  }
})

describe.each(ops.map((op) => [op.name, op] as const))('the cases of %s', (name, op) => {
  const reasons = exempt[name] ?? {}
  const edges = {
    odd: {
      title: 'a size that is no multiple of a workgroup',
      isHeld: (example: Case) => allCounts(op, example).some((n) => n > 1 && n % 4 !== 0),
    },
    empty: {
      title: 'an empty dimension',
      isHeld: (example: Case) => allCounts(op, example).some((n) => n === 0),
    },
    huge: { title: 'huge magnitudes', isHeld: (example: Case) => example.fill === 'huge' },
    one: {
      title: 'one element',
      isHeld: (example: Case) => allCounts(op, example).some((n) => n === 1),
    },
  }
  for (const [edge, { title, isHeld }] of Object.entries(edges)) {
    const reason = reasons[edge as keyof typeof reasons]
    test(reason ? `need not hold ${title}: ${reason}` : `hold ${title}`, () => {
      expect(op.cases.some(isHeld)).toBe(!reason)
    })
  }
})

test('every elementwise function has a case of map', () => {
  const used = cases.flatMap(({ attrs }) => attrs.steps.map(({ fn }) => fn))
  const without = Object.keys(scalarFunctions).filter((name) => !used.some((fn) => fn === name))
  expect(without, 'add a line to src/kernels/map/cases.ts').toEqual([])
})
