import { afterEach, expect, test } from 'vitest'
import { edgeCalls, edgeCases } from '../support/edge-calls.ts'
import { problemsOfCall } from '../support/golden-call.ts'
import { checkTestRuntime, testRuntime } from '../support/run-op.ts'

// Empty dimensions, single elements, infinities and extreme magnitudes through the functions that users call, against PyTorch
// (tests/golden/edges.py): values, gradients and shapes; what PyTorch has as NaN or an infinity is one here.

afterEach(checkTestRuntime)

for (const golden of edgeCases) {
  test(golden.name, async () => {
    expect(await problemsOfCall(golden, edgeCalls, { runtime: await testRuntime() })).toEqual([])
  })
}
