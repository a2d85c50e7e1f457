import { afterEach, test } from 'vitest'
import { checkAdded, checkAdversarial, checkSaliency } from '../../support/input-gradients.ts'
import { testRuntime } from '../../support/run-op.ts'

afterEach(async () => (await testRuntime()).gpu.check())

test.each([
  ['saliency maps and hidden gradients', checkSaliency],
  ['adversarial training', checkAdversarial],
  ['gradients that add up', checkAdded],
])('%s are those of PyTorch', async (_, check) => check(await testRuntime()))
