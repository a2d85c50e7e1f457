import { describe, expect, test } from 'vitest'
import { ops } from '../../src/kernels/index.ts'
import type { Case, Op } from '../../src/kernels/op.ts'
import { callOf, checkCase } from '../support/op-check.ts'
import { testRuntime } from '../support/run-op.ts'

// Every variant of every op once, and every element type of its inputs; tests/all/gpu/every-op.spec.ts has all cases of each.
// One op alone: npm test -- tests/gpu/every-op.spec.ts -t matmul

const { limits } = await testRuntime()

const canRun = (op: Op, variant: Op['variants'][number], example: Case): boolean =>
  variant.when?.(callOf(op, example), limits) ?? true

/** The first case that the variant can run and, where the op prefers it for some case, that it is preferred for. */
function caseFor(op: Op, variant: Op['variants'][number]): Case | undefined {
  const possible = op.cases.filter((example) => canRun(op, variant, example))
  const preferred = possible.find(
    (example) => op.preferred?.(callOf(op, example), limits) === variant.name,
  )
  return preferred ?? possible[0]
}

const typesOf = ({ inputs }: Case): string[] => inputs.map(({ dtype }, at) => `${at} ${dtype}`)

/** Each variant with its case, and `naive` with those that have further element types. */
function checksOf(op: Op) {
  const checks = op.variants.flatMap((variant) => {
    const example = caseFor(op, variant)
    return example ? [{ variant, example }] : []
  })
  const [naive] = op.variants
  const types = new Set(checks.flatMap(({ example }) => typesOf(example)))
  for (const example of op.cases) {
    const own = typesOf(example)
    if (own.every((type) => types.has(type))) continue
    for (const type of own) types.add(type)
    checks.push({ variant: naive, example })
  }
  return checks
}

for (const op of ops) {
  describe(op.name, () => {
    for (const { variant, example } of checksOf(op)) {
      test.concurrent(`${variant.name}: ${example.name}`, async () => {
        const problem = await checkCase(op, variant, example)
        if (problem) expect.fail(problem)
      })
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
