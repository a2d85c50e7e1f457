import { describe, expect, test } from 'vitest'
import { ops } from '../../src/kernels/index.ts'
import { callOf, checkCase } from '../support/op-check.ts'
import { testRuntime } from '../support/run-op.ts'

// Every op of the registry x every case x every variant that can run it here.
// One op alone: npx vitest run --project gpu tests/gpu/every-op.spec.ts -t "matmul"

const { limits } = await testRuntime()

for (const op of ops) {
  describe(op.name, () => {
    for (const variant of op.variants) {
      for (const example of op.cases) {
        if (!(variant.when?.(callOf(op, example), limits) ?? true)) continue
        test(`${variant.name}: ${example.name}`, async () => {
          const problem = await checkCase(op, variant, example)
          if (problem) expect.fail(problem)
        })
      }
    }
    test('the fixed table names variants that can run', () => {
      for (const example of op.cases) {
        const call = callOf(op, example)
        const name = op.preferred?.(call, limits) ?? op.variants[0].name
        const variant = op.variants.find((v) => v.name === name)
        expect(variant, `${example.name}: "${name}" is no variant`).toBeDefined()
        expect(
          variant!.when?.(call, limits) ?? true,
          `${example.name}: ${name} cannot run it`,
        ).toBe(true)
      }
    })
  })
}
