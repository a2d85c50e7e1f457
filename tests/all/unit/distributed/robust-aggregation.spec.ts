import { describe, expect, test } from 'vitest'
import { liars } from '../../../support/liars.ts'
import { trainWithLiar } from '../../../support/lying-ranks.ts'

// Ranks that lie over a whole training; tests/unit/distributed/robust-aggregation.spec.ts has single steps.

test('the mean of 8 ranks learns little when one of them reverses its gradients, 7 times as large', async () => {
  const { accuracy } = await trainWithLiar('reversed x7', {})
  expect(accuracy).toBeLessThan(60)
})

test.each([
  { size: 3, liars: [2] },
  { size: 4, liars: [2] },
  { size: 8, liars: [2, 5] },
])('the mean of $size strangers learns when $liars lie', { timeout: 300_000 }, async (ranks) => {
  const trust = 'strangers'
  const honest = await trainWithLiar(undefined, { trust }, { steps: 80, size: ranks.size })
  for (const kind of [
    'zero',
    'reversed',
    'reversed x7',
    'reversed x9',
    'slow raise, then reversed',
  ]) {
    const { accuracy } = await trainWithLiar(kind, { trust }, { steps: 80, ...ranks })
    expect(accuracy, kind).toBeGreaterThan(honest.accuracy - 2)
  }
})

describe.each(['mean', 'median', 'trimmedMean', 'clipped'] as const)('%s', (aggregation) => {
  for (const trust of ['members', 'strangers'] as const) {
    if (aggregation === 'mean' && trust === 'members') continue
    test(`of 8 ranks is within 2 points of no liar when one lies, among ${trust}`, {
      timeout: 300_000,
    }, async () => {
      const honest = await trainWithLiar(undefined, { aggregation, trust }, { steps: 80 })
      expect(honest.leftOut).toEqual([])
      for (const kind of Object.keys(liars)) {
        const { accuracy } = await trainWithLiar(kind, { aggregation, trust }, { steps: 80 })
        expect(accuracy, kind).toBeGreaterThan(honest.accuracy - 2)
      }
    })
  }
})
