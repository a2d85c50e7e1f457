import { expect, test } from 'vitest'
import { LeftOutRanks } from '../../../src/ddp/hooks/left-out.ts'
import { honestNorms } from '../../support/honest-norms.ts'

const nan = Number.NaN

test('strangers are left out when their gradients are over 10 times the median of the others', () => {
  const ranks = new LeftOutRanks('strangers')
  expect(ranks.judge(0, [1, 2, 3, 20])).toEqual({ ranks: [], notFinite: [] })
  expect(ranks.judge(0, [1, 2, 3, 20.5])).toEqual({ ranks: [3], notFinite: [] })
  // Late in training the limit is still that of the largest median.
  expect(ranks.judge(0, [1e-6, 1e-6, 1e-6, 19])).toEqual({ ranks: [], notFinite: [] })
  expect(ranks.judge(0, [1e-6, 1e-6, 1e-6, 21])).toEqual({ ranks: [3], notFinite: [] })
  // Each bucket has its own limit.
  expect(ranks.judge(1, [1e-6, 1e-6, 1e-6, 19])).toEqual({ ranks: [3], notFinite: [] })
  expect(ranks.judge(2, [0, 0, 0, 5])).toEqual({ ranks: [], notFinite: [] })
})

test.each(['members', 'strangers'] as const)(
  '%s are left out when their gradients are not finite, unless most are',
  (trust) => {
    const ranks = new LeftOutRanks(trust)
    expect(ranks.judge(0, [1, nan, 1, Number.POSITIVE_INFINITY])).toEqual({
      ranks: [1, 3],
      notFinite: [1, 3],
    })
    expect(ranks.judge(0, [nan, nan, 1])).toEqual({ ranks: [], notFinite: [] })
    expect(ranks.judge(0, [nan, nan, nan])).toEqual({ ranks: [], notFinite: [] })
  },
)

test('a stranger with tiny gradients gets nobody left out in the first step', () => {
  expect(new LeftOutRanks('strangers').judge(0, [1, 1, 1e-9])).toEqual({
    ranks: [],
    notFinite: [],
  })
})

test('members are not left out for large gradients', () => {
  expect(new LeftOutRanks('members').judge(0, [1, 1, 1e9])).toEqual({ ranks: [], notFinite: [] })
})

test.each([2, 3, 8])(
  '%d honest strangers with uneven data are not left out in 3000 steps',
  (size) => {
    const ranks = new LeftOutRanks('strangers')
    let most = 0
    let step = 0
    for (const norms of honestNorms(size, size)) {
      expect(ranks.judge(0, norms).ranks, `step ${step}: ${norms}`).toEqual([])
      const others = norms.slice(1).sort((a, b) => a - b)
      most = Math.max(most, norms[0]! / others[(others.length - 1) >> 1]!)
      if (++step === 3000) break
    }
    // What is compared with the median of the same step alone would be left out.
    expect(most).toBeGreaterThan(10)
  },
)
