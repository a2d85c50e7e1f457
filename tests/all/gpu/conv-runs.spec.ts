import { afterEach } from 'vitest'
import { convRuns } from '../../support/conv-models.ts'
import { convRunTests } from '../../support/conv-run-tests.ts'
import { testRuntime } from '../../support/run-op.ts'

// A CNN with batch normalization and ResNets against PyTorch (tests/golden/conv_layers.py).

afterEach(async () => (await testRuntime()).gpu.check())

convRunTests(convRuns)
