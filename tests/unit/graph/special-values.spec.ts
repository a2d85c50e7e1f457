import { expect, test } from 'vitest'
import { specialProblems } from '../../support/special-values.ts'

test('the CPU device passes NaN, infinities, zeros and huge numbers through functions and gradients as PyTorch does', async () => {
  expect(await specialProblems({ device: 'reference' })).toEqual([])
})
