import { expect, test } from 'vitest'
import { aggregate } from '../../../src/ddp/hooks/aggregate.ts'
import { seededRandom } from '../../../src/util/virtual-env.ts'

const of = (...values: number[]) => Float32Array.of(...values)
const ranks = [of(1, 10), of(2, -1), of(3, 0), of(100, 1)]

test('mean, median and trimmed mean are those of each element', () => {
  expect(aggregate('mean', ranks)).toEqual(of(26.5, 2.5))
  expect(aggregate('median', ranks)).toEqual(of(2.5, 0.5))
  expect(aggregate('trimmedMean', ranks)).toEqual(of(2.5, 0.5))
  expect(aggregate('median', ranks.slice(0, 3))).toEqual(of(2, 0))
  const nine = Array.from({ length: 9 }, (_, i) => of(i ** 2))
  // Two of nine are cut at each end.
  expect(aggregate('trimmedMean', nine)[0]).toBeCloseTo((4 + 9 + 16 + 25 + 36) / 5, 5)
})

test.each(['mean', 'median', 'trimmedMean', 'clipped'] as const)(
  '%s of one rank, and of equal ranks, is that gradient',
  (kind) => {
    expect(aggregate(kind, [of(3, -2)])).toEqual(of(3, -2))
    expect(aggregate(kind, [of(3, -2), of(3, -2), of(3, -2)])).toEqual(of(3, -2))
  },
)

test('clipped moves from the median by at most the median distance of each rank', () => {
  // Distances from (0, 0): 1, 1, 3, 3 and 9, so the last one counts as (0, 3): the center moves to (0, 0.6) and on.
  const five = [of(-1, 0), of(1, 0), of(-3, 0), of(3, 0), of(0, 9)]
  const [x, y] = aggregate('clipped', five)
  expect(x).toBeCloseTo(0, 5)
  expect(y).toBeGreaterThan(0.6)
  expect(y).toBeLessThan(1.8)
  const far = aggregate('clipped', [of(1), of(1.5), of(0.5), of(1e9)])
  expect(far[0]).toBeGreaterThan(0.5)
  expect(far[0]).toBeLessThan(2)
})

test('none but the mean moves far when one rank of eight lies', () => {
  const random = seededRandom(3)
  const honest = Array.from({ length: 7 }, () => Float32Array.from({ length: 50 }, () => random()))
  const all = [...honest, new Float32Array(50).fill(1e6)]
  for (const kind of ['median', 'trimmedMean', 'clipped'] as const) {
    for (const value of aggregate(kind, all)) {
      expect(value).toBeGreaterThan(0)
      expect(value).toBeLessThan(1.5)
    }
  }
  expect(Math.max(...aggregate('mean', all))).toBeGreaterThan(1e5)
})
