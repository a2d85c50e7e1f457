import { expect, test } from 'vitest'
import {
  formatKernels,
  formatTotals,
  type KernelRow,
} from '../../../src/graph/inside/kernel-rows.ts'
import { ops } from '../../../src/kernels/index.ts'
import { tensorType } from '../../../src/util/shape.ts'

const rows: KernelRow[] = [
  { op: 'matmul', variant: 'split-4', dims: 'f32[8]', start: 0, end: 2, flops: 4e6, bytes: 2e6 },
  { op: 'reshape', variant: 'naive', dims: 'f32[8]', start: 2, end: 2, flops: undefined, bytes: 0 },
  { op: 'sum', variant: 'tree', dims: 'f32[9]', start: 2, end: 3, flops: undefined, bytes: 5e5 },
]

test('a row sums its dispatches, and rates are of that sum', () => {
  expect(formatKernels(rows, [1.5, 0.5, 0.25])).toBe(
    [
      '   ms  GFLOP/s  GB/s  kernel',
      '2.000     2.00  1.00  matmul split-4 x2  f32[8]',
      '0.250        -  2.00  sum tree  f32[9]',
    ].join('\n'),
  )
  expect(formatTotals(rows, 2.5)).toBe('3 dispatches, 2.500 ms, 1.60 GFLOP/s, 1.00 GB/s')
})

test('operations are counted as they are quoted', () => {
  const flopsOf = (name: string, shapes: number[][], attrs: unknown) => {
    const op = ops.find((one) => one.name === name)!
    const inputs = shapes.map((shape) => tensorType(shape))
    return op.flops!({ inputs, outputs: op.infer(inputs, attrs), attrs })
  }
  const product = { form: 'nt', epilogue: [], rowSums: false }
  expect(
    flopsOf(
      'matmul',
      [
        [64, 784],
        [256, 784],
      ],
      product,
    ),
  ).toBe(2 * 64 * 784 * 256)
  const window = { stride: [1, 1], padding: [1, 1], epilogue: [] }
  const image = [2, 3, 8, 8]
  expect(flopsOf('conv2d', [image, [5, 3, 3, 3]], window)).toBe(2 * 2 * 5 * 64 * 3 * 9)
  const heads = { layout: 'heads', batch: 2, heads: 4, scale: 1, mask: null, dropout: null }
  const q = [2, 4, 16, 8]
  expect(flopsOf('attention', [q, q, q], { ...heads, isCausal: false })).toBe(4 * 8 * 256 * 8)
})
