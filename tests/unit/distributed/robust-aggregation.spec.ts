import { expect, test } from 'vitest'
import { liar, trainWithLiar } from '../../support/lying-ranks.ts'

test('the mean of 8 ranks learns little when one of them reverses its gradients', async () => {
  const { accuracy } = await trainWithLiar('sign', {})
  expect(accuracy).toBeLessThan(60)
})

test('the median of 8 ranks is within 2 points of no liar when one reverses its gradients', async () => {
  const honest = await trainWithLiar(undefined, { aggregation: 'median' })
  const { accuracy, leftOut } = await trainWithLiar('sign', { aggregation: 'median' })
  expect(accuracy).toBeGreaterThan(honest.accuracy - 2)
  expect(leftOut).toEqual([])
})

test('the mean among strangers is that of plain training when nobody lies', async () => {
  const plain = await trainWithLiar(undefined, {})
  const robust = await trainWithLiar(undefined, { trust: 'strangers' })
  expect(robust.leftOut).toEqual([])
  expect(robust.lastLoss).toBeCloseTo(plain.lastLoss, 4)
  expect(robust.accuracy).toBe(plain.accuracy)
})

test.each(['one large coordinate', 'not a number'])(
  'all ranks leave a stranger out of each step, and name it, when it lies: %s',
  async (kind) => {
    const { accuracy, leftOut, lastLoss } = await trainWithLiar(kind, { trust: 'strangers' })
    expect(accuracy).toBeGreaterThan(97)
    expect(Number.isFinite(lastLoss)).toBe(true)
    // Two buckets in each of 40 steps.
    expect(leftOut).toHaveLength(80)
    const notFinite = kind === 'not a number' ? [liar] : []
    for (const one of leftOut) expect(one).toEqual({ ranks: [liar], notFinite })
  },
)
