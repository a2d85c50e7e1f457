import { expect, test } from 'vitest'
import { map } from '../../../src/kernels/map/map.ts'
import { matmul } from '../../../src/kernels/matmul/matmul.ts'
import type { Op, OpCall } from '../../../src/kernels/op.ts'
import { reductionPasses } from '../../../src/kernels/reduce/shapes.ts'
import { softmax } from '../../../src/kernels/softmax/softmax.ts'
import { collapseBroadcast } from '../../../src/kernels/steps.ts'
import { tensorType } from '../../../src/util/shape.ts'

// The text that the generators write, for four calls: a change of a generator shows here as the change of a shader.

function textOf<A>(op: Op<A>, variantName: string, inputs: readonly number[][], attrs: A): string {
  const types = inputs.map((shape) => tensorType(shape))
  const call: OpCall<A> = { inputs: types, outputs: op.infer(types, attrs), attrs }
  const variant = op.variants.find(({ name }) => name === variantName)!
  return variant
    .lower(call)
    .dispatches.map(({ wgsl, groups, label }) => `// ${label}, groups ${groups}\n${wgsl}`)
    .join('\n')
}

test('a broadcast chain', () => {
  const attrs = {
    steps: [
      { fn: 'add', args: [{ input: 0 }, { input: 1 }] },
      { fn: 'relu', args: [{ step: 0 }] },
    ],
  } as const
  expect(textOf(map, 'wide', [[10, 20], [20]], attrs)).toMatchSnapshot()
})

test('a direct matmul with edges, an epilogue and row sums', () => {
  const attrs = {
    form: 'tn',
    epilogue: [{ fn: 'mul', args: [{ input: 0 }, { input: 1 }] }],
    rowSums: true,
  } as const
  expect(textOf(matmul, 'direct-4x4', [[6, 10], [6, 8], []], attrs)).toMatchSnapshot()
})

test('a tiled matmul', () => {
  const attrs = { form: 'nt', epilogue: [], rowSums: false } as const
  expect(
    textOf(
      matmul,
      'tiled-32x32',
      [
        [33, 12],
        [32, 12],
      ],
      attrs,
    ),
  ).toMatchSnapshot()
})

test('a softmax of rows that lanes share', () => {
  expect(textOf(softmax, 'lanes', [[3, 100]], { axis: 1 })).toMatchSnapshot()
})

test('broadcasts collapse to few axes', () => {
  expect(
    collapseBroadcast(
      [64, 28, 28],
      [
        [64, 28, 28],
        [28, 28],
      ],
    ),
  ).toEqual({
    output: [64, 784],
    operands: [
      [64, 784],
      [1, 784],
    ],
  })
  expect(collapseBroadcast([5, 1, 7], [[5, 1, 7], []])).toEqual({
    output: [35],
    operands: [[35], [1]],
  })
  expect(collapseBroadcast([1], [[1]])).toEqual({ output: [], operands: [[]] })
})

test('sums take one pass for each run of reduced axes', () => {
  expect(reductionPasses([4, 16, 7, 7], [0, 2, 3])).toEqual([
    { outer: 64, reduced: 49, inner: 1 },
    { outer: 1, reduced: 4, inner: 16 },
  ])
  expect(reductionPasses([8, 5], [0])).toEqual([{ outer: 1, reduced: 8, inner: 5 }])
  expect(reductionPasses([0, 5], [0])).toEqual([{ outer: 5, reduced: 0, inner: 1 }])
})
