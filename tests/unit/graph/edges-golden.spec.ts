import { expect, test } from 'vitest'
import { edgeCalls, edgeCases } from '../../support/edge-calls.ts'
import { problemsOfCall } from '../../support/golden-call.ts'

// The same on the CPU backend, so on the references of the ops.

for (const golden of edgeCases) {
  test(golden.name, async () => {
    expect(await problemsOfCall(golden, edgeCalls, { device: 'cpu' })).toEqual([])
  })
}
