import { expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { compileAccumulated } from '../../../src/graph/compile/compile-accumulated.ts'
import { tensorType } from '../../../src/util/shape.ts'

// `npm run check:types` fails where a line below `@ts-expect-error` has no type error.

const inputs = { x: tensorType([2]) }
const x = Float32Array.of(1, 2)

test('compile types the outputs by the names that the function returns', async () => {
  const step = await compile(({ x }) => ({ total: x.sum() }), inputs, { device: 'reference' })
  const outputs = await step.run({ x })
  expect(outputs.total[0]).toBe(3)
  // @ts-expect-error: no output has this name
  expect(outputs.totl).toBeUndefined()
})

test('compile types the inputs by the names that are declared', async () => {
  // @ts-expect-error: no input has this name
  const made = compile(({ z }) => ({ total: z.sum() }), inputs, { device: 'reference' })
  await expect(made).rejects.toThrow()
})

test('compileAccumulated types inputs and outputs too', async () => {
  const step = await compileAccumulated(({ x }) => ({ total: x.sum() }), inputs, {
    steps: 1,
    device: 'reference',
  })
  const outputs = await step.run({ x })
  expect(outputs.total[0]).toBe(3)
  // @ts-expect-error: no output has this name
  expect(outputs.totl).toBeUndefined()
})
