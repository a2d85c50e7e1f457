import { describe, test } from 'vitest'
import golden from '../golden/modules.json'
import { expectGolden } from '../support/golden.ts'
import { runHooked } from '../support/hook-run.ts'
import { testRuntime } from '../support/run-op.ts'
import { runSpectral } from '../support/spectral-run.ts'

// Hooks and spectral normalization against tests/golden/modules.json, on the device. Hooks run without rewrites too, where aliases stay.

const runtime = await testRuntime()

describe('hooks', () => {
  for (const sample of golden.hooks) {
    for (const useNaiveKernels of [false, true]) {
      test(`${sample.name}, ${useNaiveKernels ? 'naive' : 'rewritten'}`, async () => {
        expectGolden(await runHooked(sample, { runtime, useNaiveKernels }), sample.outputs)
      })
    }
  }
})

describe('spectralNorm', () => {
  for (const sample of golden.spectral.cases) {
    test(sample.name, async () => {
      expectGolden(await runSpectral(sample, { runtime }), sample.outputs)
    })
  }
})
