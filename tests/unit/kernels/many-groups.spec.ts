import { expect, test } from 'vitest'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { applicable } from '../../../src/kernels/choose.ts'
import { ops } from '../../../src/kernels/index.ts'
import type { Op, OpCall } from '../../../src/kernels/op.ts'
import { bytesOf, type TensorType } from '../../../src/util/shape.ts'

// A dispatch takes at most 65,535 workgroups along each of its three dimensions, whatever is long in the tensors.

const { limits } = new ReferenceRuntime()
/** Beyond 65,535 groups of one element and of 64; images of millions of pixels in a row take long to plan. */
const longSizesOf = ({ name }: Op) => (/conv/i.test(name) ? [70_001] : [70_001, 4_200_001])
const largestBytes = 2 ** 32

/** The value with each number `size` in it replaced. */
const stretched = <T>(value: T, size: number, long: number): T =>
  JSON.parse(JSON.stringify(value), (_, inner) => (inner === size ? long : inner))

/** Calls of the op by its cases, with one size made long wherever it occurs; one call for each set of dimensions that this is. */
function longCalls(op: Op): Map<string, OpCall> {
  const calls = new Map<string, OpCall>()
  for (const { inputs, attrs } of op.cases) {
    const kernel = JSON.stringify(attrs).match(/"kernel":\[\d+,\d+\]/)?.[0] ?? ''
    for (const size of new Set(inputs.flatMap(({ shape }) => shape))) {
      if (size < 3 || kernel.includes(`${size}`)) continue
      for (const long of longSizesOf(op)) {
        const types: readonly TensorType[] = stretched(inputs, size, long)
        const places = types.map(({ shape }) => shape.map((n) => (n === long ? long : '-')))
        const texts = new Set(
          [attrs, stretched(attrs, size, long)].map((own) => JSON.stringify(own)),
        )
        for (const text of texts) {
          const own = JSON.parse(text)
          const name = `${op.name} ${JSON.stringify(places)} ${text === JSON.stringify(attrs)}`
          if (calls.has(name)) continue
          try {
            const outputs = op.infer(types, own)
            if ([...types, ...outputs].every((type) => bytesOf(type) <= largestBytes))
              calls.set(name, { inputs: types, outputs, attrs: own })
          } catch {
            // The op has no such call.
          }
        }
      }
    }
  }
  return calls
}

test('no kernel asks for more than 65,535 workgroups along a dimension', () => {
  const problems: string[] = []
  const covered = new Set<string>()
  for (const op of ops.filter(({ isView }) => !isView)) {
    for (const [name, call] of longCalls(op)) {
      for (const variant of applicable(op, call, limits)) {
        covered.add(op.name)
        for (const { label, groups } of variant.lower(call).dispatches) {
          if (Math.max(...groups) > limits.maxGroupsPerDimension)
            problems.push(`${name}, ${variant.name}: ${label} is ${groups}`)
        }
      }
    }
  }
  expect(covered.size).toBeGreaterThan(75)
  expect(problems).toEqual([])
})
