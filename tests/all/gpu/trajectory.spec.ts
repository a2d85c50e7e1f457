import { afterEach } from 'vitest'
import { goldenRuns } from '../../support/formula-model.ts'
import { testRuntime } from '../../support/run-op.ts'
import { trajectoryTests } from '../../support/trajectory-tests.ts'

afterEach(async () => (await testRuntime()).gpu.check())

trajectoryTests(goldenRuns.filter(({ name }) => name !== 'mlp adamw'))
