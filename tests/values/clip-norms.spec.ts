import { afterEach, test } from 'vitest'
import { checkClippedNorm, normCases } from '../support/clip-norms.ts'
import { testRuntime } from '../support/run-op.ts'

afterEach(async () => (await testRuntime()).gpu.check())

test.each(normCases)('norm %s is PyTorch’s', async (_, one) => {
  await checkClippedNorm(one, await testRuntime())
})
