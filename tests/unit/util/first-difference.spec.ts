import { expect, test } from 'vitest'
import { clippedMessage, clippedToDifference } from '../../../src/util/clipped.ts'
import { firstDifference } from '../../../src/util/first-difference.ts'

test('an error shows short texts that differ whole, with the ranks that have each', () => {
  expect(firstDifference([['a', 'b'], ['a', 'c'], ['a']], 'none')).toEqual({
    at: 1,
    text: 'b on rank 0, c on rank 1, none on rank 2',
  })
})

test('an error shows long texts around the first place where they differ', () => {
  const text = (middle: string) => `${'a'.repeat(5e6)}lr ${middle} ${'b'.repeat(5e6)}`
  const { text: difference } = firstDifference(
    [[text('0.1')], [text('0.2')], [text('0.2')]],
    'none',
  )!
  expect(difference).toMatch(/^…a+lr 0\.1 b+… on rank 0, …a+lr 0\.2 b+… on ranks 1 and 2$/)
  expect(difference.length).toBeLessThan(200)
})

test.each([
  [
    ['x'.repeat(100), 'y'],
    [`${'x'.repeat(79)}…`, 'y'],
  ],
  [
    ['x'.repeat(100), 'x'.repeat(101)],
    [`…${'x'.repeat(79)}`, `…${'x'.repeat(79)}`],
  ],
  [
    ['x'.repeat(100), ''],
    [`${'x'.repeat(79)}…`, ''],
  ],
])('texts are cut at 80 characters, at their beginnings and ends too: %#', (texts, shown) => {
  expect(clippedToDifference(texts)).toEqual(shown)
})

test("another rank's error is cut at 2000 characters", () => {
  expect(clippedMessage('x'.repeat(2000))).toHaveLength(2000)
  expect(clippedMessage('x'.repeat(5e6))).toHaveLength(2000)
})
