import { describe, expect, test } from 'vitest'
import { ops } from '../../../src/kernels/index.ts'
import { matmul } from '../../../src/kernels/matmul/matmul.ts'
import { callOf, checkCase } from '../../support/op-check.ts'
import { testRuntime } from '../../support/run-op.ts'

// Every op of the registry x every case x every variant that can run it here.
// One op alone: npm test -- tests/all/gpu/every-op.spec.ts -t matmul

const { limits } = await testRuntime()

test('where the adapter has subgroups, each variant that takes them has cases of every form', async () => {
  const { facts } = await testRuntime()
  if (!facts.hasSubgroups) return expect(limits.subgroupSizes).toBeUndefined()
  for (const variant of matmul.variants.filter(({ name }) => name.startsWith('subgroup'))) {
    const forms = matmul.cases
      .filter((example) => variant.when!(callOf(matmul, example), limits))
      .map(({ inputs, attrs }) => `${inputs[0].dtype} ${attrs.form}`)
    expect(new Set(forms), variant.name).toEqual(
      new Set(['f32 nn', 'f32 nt', 'f32 tn', 'f16 nt', 'f16 tn']),
    )
  }
})

for (const op of ops) {
  describe(op.name, () => {
    for (const variant of op.variants) {
      for (const example of op.cases) {
        if (!(variant.when?.(callOf(op, example), limits) ?? true)) continue
        test.concurrent(`${variant.name}: ${example.name}`, async () => {
          const problem = await checkCase(op, variant, example)
          if (problem) expect.fail(problem)
        })
      }
    }
  })
}
