import { afterEach } from 'vitest'
import { equalsOneRank } from '../../support/ddp-ranks.ts'
import { testRuntime } from '../../support/run-op.ts'

afterEach(async () => (await testRuntime()).gpu.check())

// 48 and 12 rows can be shared evenly by 2, 3 and 4 ranks, 47 and 13 by none of them.
equalsOneRank([
  { name: 'mlp adamw', batchSize: 48, tolerance: 1e-5 },
  { name: 'mlp adamw', batchSize: 47, tolerance: 1e-5, sizes: [2, 4] },
  { name: 'mlp sgd', batchSize: 47, tolerance: 1e-5, steps: 20, sizes: [3] },
  { name: 'cnn adamw', batchSize: 12, tolerance: 1e-4 },
  { name: 'cnn adamw', batchSize: 13, tolerance: 1e-4 },
])
