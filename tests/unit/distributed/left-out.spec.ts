import { describe, expect, test } from 'vitest'
import { type BucketNorms, LeftOutRanks, type Limits } from '../../../src/ddp/hooks/left-out.ts'
import { honestNorms } from '../../support/honest-norms.ts'
import { destroyRings, ringOf } from '../../support/process-ring.ts'

const nan = Number.NaN
const infinite = Number.POSITIVE_INFINITY
const elements = 256
const nobody = { ranks: [], notFinite: [] }

/** Norms of honest ranks, whose gradients are as large in each range. */
const honest = (...claimed: number[]): BucketNorms => ({
  claimed,
  measured: claimed.map(() => claimed.map((norm) => norm / Math.sqrt(claimed.length))),
})

/** The same where rank `owner` says that it has measured `row`. */
const withRow = ({ claimed, measured }: BucketNorms, owner: number, row: readonly number[]) => ({
  claimed,
  measured: measured.with(owner, row),
})

test('strangers are left out when their gradients are over 10 times the median of the others', () => {
  const ranks = new LeftOutRanks('strangers')
  const judge = (index: number, ...claimed: number[]) =>
    ranks.judge(index, elements, honest(...claimed))
  expect(judge(0, 1, 2, 3, 20)).toEqual(nobody)
  expect(judge(0, 1, 2, 3, 20.5)).toEqual({ ranks: [3], notFinite: [] })
  // Late in training the limit is still that of the largest median.
  expect(judge(0, 1e-6, 1e-6, 1e-6, 19)).toEqual(nobody)
  expect(judge(0, 1e-6, 1e-6, 1e-6, 21)).toEqual({ ranks: [3], notFinite: [] })
  // Each bucket has its own limit.
  expect(judge(1, 1e-6, 1e-6, 1e-6, 19)).toEqual({ ranks: [3], notFinite: [] })
  expect(judge(2, 0, 0, 0, 5)).toEqual(nobody)
})

test.each(['members', 'strangers'] as const)(
  '%s are left out when their gradients are not finite, unless most are',
  (trust) => {
    const ranks = new LeftOutRanks(trust)
    const judge = (...claimed: number[]) => ranks.judge(0, elements, honest(...claimed))
    expect(judge(1, nan, 1, infinite)).toEqual({ ranks: [1, 3], notFinite: [1, 3] })
    expect(judge(nan, nan, 1)).toEqual(nobody)
    expect(judge(nan, nan, nan)).toEqual(nobody)
  },
)

test('a stranger with tiny gradients gets nobody left out in the first step', () => {
  expect(new LeftOutRanks('strangers').judge(0, elements, honest(1, 1, 1e-9))).toEqual(nobody)
})

test('members are not left out for large gradients', () => {
  expect(new LeftOutRanks('members').judge(0, elements, honest(1, 1, 1e9))).toEqual(nobody)
})

describe('a rank that lies about what it measures', () => {
  const out = (norms: BucketNorms, ranks = new LeftOutRanks('strangers')) =>
    ranks.judge(0, elements, norms)

  test.each([nan, infinite, 1e38, 0])('hides none of its gradients by saying %d of all', (said) => {
    const ranks = new LeftOutRanks('strangers')
    for (const own of [1e30, 12]) {
      const lie = withRow(honest(1, 1, 1, own), 3, [said, said, said, said])
      expect(out(lie, ranks).ranks).toEqual([3])
    }
    // Nor later, when it measures again.
    expect(out(honest(1, 1, 1, 20), ranks).ranks).toEqual([3])
    expect(out(honest(1, 1, 1, 1), ranks)).toEqual(nobody)
  })

  test('hides none of its gradients by what it says of itself', () => {
    for (const own of [nan, 1e38, 0, -1e38]) {
      const { measured } = honest(1, 1, 1, 1e30)
      expect(out({ claimed: [1, 1, 1, own], measured }).ranks).toEqual([3])
      const two = honest(1, 1e30)
      expect(out({ claimed: [1, own], measured: two.measured }).ranks).toEqual([1])
    }
  })

  test('gets at most half of the ranks left out, and none of them as not finite', () => {
    const four = honest(1, 1, 1, 1)
    expect(out(withRow(four, 3, [nan, nan, 1, 1]))).toEqual({ ranks: [0, 1], notFinite: [] })
    expect(out(withRow(four, 3, [nan, 100, 1e9, 0]))).toEqual(nobody)
    // Within the limit of each, and above it together with the others' rows.
    expect(out(withRow(four, 3, [9.99, 9.99, 9.99, 0]))).toEqual(nobody)
  })
})

test('one number that is not finite in a range is enough to be left out', () => {
  const two = honest(1, 1, 1, nan)
  const one = { ...two, measured: honest(1, 1, 1, 1).measured.with(1, [1, 1, 1, nan]) }
  expect(new LeftOutRanks('members').judge(0, elements, one)).toEqual({
    ranks: [3],
    notFinite: [3],
  })
})

test.each([2, 3, 8])(
  '%d honest strangers with uneven data are not left out in 3000 steps',
  (size) => {
    const ranks = new LeftOutRanks('strangers')
    let max = 0
    let step = 0
    for (const norms of honestNorms(size, size)) {
      const { claimed } = norms
      expect(ranks.judge(0, elements, norms).ranks, `step ${step}: ${claimed}`).toEqual([])
      const others = claimed.slice(1).sort((a, b) => a - b)
      max = Math.max(max, claimed[0]! / others[(others.length - 1) >> 1]!)
      if (++step === 3000) break
    }
    // What is compared with the median of the same step alone would be left out.
    expect(max).toBeGreaterThan(10)
  },
)

/** Steps of 1000 in which an honest rank is left out, where a new group follows each 500. */
function leftOutIn(follow: (before: LeftOutRanks) => LeftOutRanks): number {
  let ranks = new LeftOutRanks('strangers')
  let step = 0
  let count = 0
  for (const norms of honestNorms(3, 5)) {
    if (ranks.judge(0, elements, norms).ranks.length > 0) count++
    if (++step === 1000) break
    if (step % 500 === 0) ranks = follow(ranks)
  }
  return count
}

test('honest strangers are not left out in groups that follow, since these take the limits over', () => {
  const follow = (before: LeftOutRanks) => {
    const ranks = new LeftOutRanks('strangers')
    ranks.loadStateDict(before.stateDict())
    return ranks
  }
  expect(leftOutIn(follow)).toBe(0)
  expect(leftOutIn(() => new LeftOutRanks('strangers'))).toBeGreaterThan(0)
})

test('buckets that are cut otherwise begin with the limit of the whole model', () => {
  const before = new LeftOutRanks('strangers')
  before.judge(0, elements, honest(3, 3, 3))
  before.judge(1, elements, honest(4, 4, 4))
  const ranks = new LeftOutRanks('strangers')
  ranks.loadStateDict(before.stateDict())
  expect(ranks.judge(0, elements, honest(0, 0, 31)).ranks).toEqual([2])
  expect(ranks.judge(0, 2 * elements, honest(0, 0, 49)).ranks).toEqual([])
  expect(ranks.judge(0, 2 * elements, honest(0, 0, 51)).ranks).toEqual([2])
})

test('ranks agree on the median of their limits, whatever one of them says', async () => {
  const groups = await ringOf(4)
  const said: readonly Limits[] = [
    { '0: 256': 2, '1: 64': 5 },
    { '0: 256': 1e38, '9: 9': 7, constructor: 1, ['__proto__']: 1 },
    { '0: 256': 2, '1: 64': 5 },
    { '0: 256': 2, '1: 64': 5 },
  ]
  try {
    const agreed = await Promise.all(
      groups.map(async (group, rank) => {
        const ranks = new LeftOutRanks('strangers')
        ranks.loadStateDict(said[rank]!)
        await ranks.agree(group)
        return ranks.stateDict()
      }),
    )
    for (const own of agreed) expect(own).toEqual({ '0: 256': 2, '1: 64': 5 })
  } finally {
    destroyRings()
  }
})

describe('a stranger counts as much as others do', () => {
  const scales = (norms: BucketNorms) => new LeftOutRanks('strangers').scales(norms)

  test('gradients above twice the median are made that long, of four ranks or fewer those above it', () => {
    expect(scales(honest(1, 1, 1, 2, 8))).toEqual([1, 1, 1, 1, 0.25])
    expect(scales(honest(1, 1, 4))).toEqual([1, 1, 0.25])
    expect(scales(honest(0, 1, 1))).toEqual([1, 1, 1])
    expect(new LeftOutRanks('members').scales(honest(1, 1, 4))).toEqual([1, 1, 1])
  })

  test('measured gradients count when a rank claims smaller ones', () => {
    const { measured } = honest(1, 1, 1, 1, 8)
    expect(scales({ claimed: [1, 1, 1, 1, 1], measured })[4]).toBeCloseTo(0.25)
  })

  test('a rank that measures too much of all others scales none of them down', () => {
    const lie = withRow(honest(1, 1, 1, 1, 1), 4, [9, 9, 9, 9, 0])
    expect(scales(lie)).toEqual([1, 1, 1, 1, 1])
  })
})
