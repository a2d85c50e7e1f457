import { afterEach, expect, test } from 'vitest'
import { cornerCalls, cornerCases } from '../support/corner-calls.ts'
import { problemsOfCall } from '../support/golden-call.ts'
import { checkTestRuntime, testRuntime } from '../support/run-op.ts'

// Calls that are easy to leave out, and arithmetic of integers, against PyTorch (tests/golden/corners.py).

afterEach(checkTestRuntime)

for (const golden of cornerCases) {
  test(golden.name, async () => {
    expect(await problemsOfCall(golden, cornerCalls, { runtime: await testRuntime() })).toEqual([])
  })
}
