import { afterEach, expect, test } from 'vitest'
import { testRuntime } from '../support/run-op.ts'
import { checkSyncBatchNorm, syncCases } from '../support/sync-batch-norm.ts'

// What tests/unit/train shows on the cpu, on a device: programs cut where ranks meet, shadows, hooks, shared buffers.

afterEach(async () => (await testRuntime()).gpu.check())

test.each(syncCases)('synchronized batch normalization of %s equals PyTorch’s', async (_, one) => {
  for (const shares of [
    [6, 1],
    [4, 0, 3],
  ]) {
    expect(await checkSyncBatchNorm(one, shares, await testRuntime())).toBeLessThanOrEqual(1)
  }
})
