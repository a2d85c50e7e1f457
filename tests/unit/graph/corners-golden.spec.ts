import { expect, test } from 'vitest'
import { cornerCalls, cornerCases } from '../../support/corner-calls.ts'
import { problemsOfCall } from '../../support/golden-call.ts'

// Calls that are easy to leave out, and arithmetic of integers, against PyTorch (tests/golden/corners.py), on the CPU backend.

for (const golden of cornerCases) {
  test(golden.name, async () => {
    expect(await problemsOfCall(golden, cornerCalls, { device: 'cpu' })).toEqual([])
  })
}
