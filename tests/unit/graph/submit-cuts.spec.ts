import { expect, test } from 'vitest'
import { submitCuts } from '../../../src/graph/run/submit-cuts.ts'

// Long programs go to the device in several submits.

const ranges = [
  { phase: 'forward', start: 0, end: 10 },
  { phase: 'backward', start: 10, end: 30 },
  { phase: 'optimizer', start: 30, end: 31 },
] as const

test('a program of up to 100 ms is one submit', () => {
  expect(submitCuts(ranges, { forward: 30, backward: 60, optimizer: 10 })).toEqual([])
  expect(submitCuts(ranges, { forward: 0, backward: 0, optimizer: 0 })).toEqual([])
  expect(submitCuts([], { forward: 0, backward: 0, optimizer: 0 })).toEqual([])
})

test('a longer one is cut into parts of equal time', () => {
  expect(submitCuts(ranges, { forward: 100, backward: 100, optimizer: 0 })).toEqual([10])
  // 300 ms, a third each: forward's 10 ms dispatches, then backward's of 5 ms... and 100 ms of the optimizer at the end.
  expect(submitCuts(ranges, { forward: 100, backward: 100, optimizer: 100 })).toEqual([10, 30])
  expect(submitCuts(ranges, { forward: 50, backward: 200, optimizer: 0 })).toEqual([14, 22])
})

test('a single long dispatch is not cut', () => {
  const one = [{ phase: 'forward', start: 0, end: 1 }] as const
  expect(submitCuts(one, { forward: 450, backward: 0, optimizer: 0 })).toEqual([])
})
