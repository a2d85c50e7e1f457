import { expect, test } from 'vitest'
import { compile } from '../../src/graph/compile/compile.ts'
import { allowedDistance, type GoldenCase, largestDistance, valuesOf } from '../support/golden.ts'
import { noteShare, seedCases, titleOf } from '../support/golden-seeds.ts'
import { testRuntime } from '../support/run-op.ts'
import { programOfShape, shapeCases } from '../support/shape-calls.ts'

// The functions that users call, values and gradients, against PyTorch's float64 results (tests/golden/shape.py): within 8
// times the distance of PyTorch's own float32 results. Programs are compiled as in training, with every rewrite.

const shares: number[] = []

/** Programs whose views matmuls read in place: once more without rewrites, where the views are copies. */
const folded = ['heads', 'both transposed', 'einsum bhts,bshd->bthd']
const runs = [...shapeCases, ...seedCases<GoldenCase>('shape')].flatMap((golden) =>
  folded.includes(golden.name)
    ? [
        { golden, useNaiveKernels: false },
        { golden, useNaiveKernels: true },
      ]
    : [{ golden, useNaiveKernels: false }],
)

for (const { golden, useNaiveKernels } of runs) {
  const { outputs } = golden
  const title = titleOf(golden)
  test(useNaiveKernels ? `${title}, without rewrites` : title, async () => {
    const { fn, types, data } = programOfShape(golden)
    const program = await compile(fn, types, { runtime: await testRuntime(), useNaiveKernels })
    const run = () => program.run(data)
    const got = await run()
    const again = await run()
    program.destroy()
    expect(Object.keys(got).sort()).toEqual(Object.keys(outputs).sort())
    for (const [key, result] of Object.entries(outputs)) {
      const expected = valuesOf(result)
      const distance = largestDistance(got[key], expected)
      const allowed = allowedDistance(result.distance, expected)
      expect(distance, `${key}: PyTorch's float32 is ${result.distance} away`).toBeLessThanOrEqual(
        allowed,
      )
      noteShare(distance, allowed)
      if (distance > 0) shares.push(distance / allowed)
      expect(again[key], `${key}: the same bits again`).toEqual(got[key])
    }
  })
}

test('the largest distance, as a share of what is allowed', () => {
  console.log(Math.max(...shares).toFixed(2))
  expect(shares.length).toBeGreaterThan(0)
})
