import { test } from 'vitest'
import { checkHalfTraining } from '../support/amp-run.ts'
import { testRuntime } from '../support/run-op.ts'

test("training under autocast follows PyTorch's float16 roundings, its loss scale included", async () =>
  checkHalfTraining({ runtime: await testRuntime() }))
