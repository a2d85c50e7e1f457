import { expect, test } from 'vitest'
import { testRuntime } from '../support/run-op.ts'
import { specialProblems } from '../support/special-values.ts'

test('NaN, infinities, zeros and huge numbers pass through functions and gradients as in PyTorch', async () => {
  expect(await specialProblems({ runtime: await testRuntime() })).toEqual([])
})
