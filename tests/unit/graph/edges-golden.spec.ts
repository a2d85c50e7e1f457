import { expect, test } from 'vitest'
import { pytorchValues } from '../../../scripts/docs/pytorch-values.ts'
import { edgeCalls, edgeCases } from '../../support/edge-calls.ts'
import { opsOfCalls, problemsOfCall } from '../../support/golden-call.ts'

// The same on the CPU backend, so on the references of the ops.

for (const golden of edgeCases) {
  test(golden.name, async () => {
    expect(await problemsOfCall(golden, edgeCalls, { device: 'cpu' })).toEqual([])
  })
}

test('the ops that the table in docs/ops.md names these cases for take part in them', () => {
  const claims = Object.entries(pytorchValues).filter(([, [file]]) =>
    /^(?:edges|empty)$/.test(file),
  )
  expect(claims.length).toBeGreaterThan(5)
  const untrue = claims.filter(([op, [, sample]]) => !opsOfCalls.get(sample)?.has(op))
  expect(untrue).toEqual([])
})
