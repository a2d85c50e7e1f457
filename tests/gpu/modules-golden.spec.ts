import { describe, expect, test } from 'vitest'
import type { RunOutputs } from '../../src/graph/plan/step-program.ts'
import golden from '../golden/modules.json'
import { allowedDistance, type GoldenResult, largestDistance, valuesOf } from '../support/golden.ts'
import { runHooked } from '../support/hook-run.ts'
import { testRuntime } from '../support/run-op.ts'
import { runSpectral } from '../support/spectral-run.ts'

// Hooks and spectral normalization against tests/golden/modules.json, on the device. Hooks run without rewrites too, where aliases stay.

const runtime = await testRuntime()

function check(got: RunOutputs, outputs: object): void {
  for (const [key, result] of Object.entries(outputs) as [string, GoldenResult][]) {
    const expected = valuesOf(result)
    expect(largestDistance(got[key], expected), key).toBeLessThanOrEqual(
      allowedDistance(result.distance, expected),
    )
  }
}

describe('hooks', () => {
  for (const sample of golden.hooks) {
    for (const useNaiveKernels of [false, true]) {
      test(`${sample.name}, ${useNaiveKernels ? 'naive' : 'rewritten'}`, async () => {
        check(await runHooked(sample, { runtime, useNaiveKernels }), sample.outputs)
      })
    }
  }
})

describe('spectralNorm', () => {
  for (const sample of golden.spectral.cases) {
    test(sample.name, async () => {
      check(await runSpectral(sample, { runtime }), sample.outputs)
    })
  }
})
