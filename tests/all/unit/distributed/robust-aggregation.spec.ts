import { describe, expect, test } from 'vitest'
import { liars } from '../../../support/liars.ts'
import { trainWithLiar } from '../../../support/lying-ranks.ts'

// Ranks that lie over a whole training; tests/unit/distributed/robust-aggregation.spec.ts has single steps.

test('the mean of 8 ranks learns little when one of them reverses its gradients', async () => {
  const { accuracy } = await trainWithLiar('sign', {})
  expect(accuracy).toBeLessThan(60)
})

describe.each(['median', 'trimmedMean', 'clipped'] as const)('%s', (aggregation) => {
  for (const trust of ['members', 'strangers'] as const) {
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
