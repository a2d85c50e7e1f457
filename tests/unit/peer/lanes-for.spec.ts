import { expect, test } from 'vitest'
import { lanesFor } from '../../../src/peer/tab/laned-connection.ts'

test.each([
  [0, 1],
  [4.9, 1],
  [5, 4],
  [39.9, 4],
  [40, 8],
  [1000, 8],
])('a round trip of %d ms is worth %d lanes', (roundTripMs, lanes) => {
  expect(lanesFor(roundTripMs)).toBe(lanes)
})
