import { expect, test } from 'vitest'
import { einsum } from '../../../src/graph/functions/einsum.ts'
import { linear } from '../../../src/graph/functions/linear.ts'
import { split } from '../../../src/graph/functions/shape.ts'
import { type Outputs, prepare } from '../../../src/graph/plan/prepare.ts'
import { ModuleBuffer } from '../../../src/graph/trace/module-buffer.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { activeTrace } from '../../../src/graph/trace/trace.ts'
import { sgd } from '../../../src/kernels/sgd/sgd.ts'
import { countElements, type Shape, tensorType } from '../../../src/util/shape.ts'
import { planningTarget } from '../../support/planning-target.ts'

// What transposes, slices and splits around matmuls cost: the kernels of a program, by name, without a device.

const parameter = (...shape: Shape) => new Parameter(shape, new Float32Array(countElements(shape)))

function kernelsOf(fn: (given: Record<string, Tensor>) => Outputs, shapes: Record<string, Shape>) {
  const types = Object.fromEntries(
    Object.entries(shapes).map(([name, shape]) => [name, tensorType(shape)]),
  )
  return prepare(planningTarget, fn, types).calls.map(({ op }) => op.name)
}

const heads = (x: Tensor, count: number) => {
  const [batch, time, width] = x.shape
  return x.reshape([batch, time, count, width / count]).permute(0, 2, 1, 3)
}

test('transposed operands are read in place', () => {
  const kernels = kernelsOf(
    ({ a, b }) => ({ y: a.transpose(-1, -2).matmul(b), z: a.matmul(b.transpose(1, 2)) }),
    { a: [2, 8, 8], b: [2, 8, 8] },
  )
  expect(kernels).toEqual(['matmul', 'matmul'])
})

test('both transposed: one of them is copied', () => {
  const kernels = kernelsOf(({ a, b }) => ({ y: a.transpose(0, 1).matmul(b.transpose(0, 1)) }), {
    a: [6, 4],
    b: [5, 6],
  })
  expect(kernels).toEqual(['view', 'matmul'])
})

test('heads out of one projection cost no copies, forward or backward', () => {
  const weight = parameter(24, 8)
  const kernels = kernelsOf(
    ({ x, dy }) => {
      const [q, k, v] = split(linear(x, weight), 8, 2)
      const scores = heads(q, 2).matmul(heads(k, 2).transpose(-2, -1))
      const y = scores.matmul(heads(v, 2)).permute(0, 2, 1, 3).reshape([2, 5, 8])
      y.mul(dy).sum().backward()
      return { y, d: weight.grad! }
    },
    { x: [2, 5, 8], dy: [2, 5, 8] },
  )
  const count = (name: string) => kernels.filter((kernel) => kernel === name).length
  // Projection, scores, result; their gradients are two each, of which the input's is not wanted.
  expect(count('matmul')).toBe(3 + 4 + 1)
  // The three gradients of the parts are stored in order by their matmuls, and joined.
  expect(count('cat')).toBe(1)
  expect(count('view') + count('place') + count('split') + count('strided')).toBe(0)
})

test('views in a row are one copy', () => {
  const kernels = kernelsOf(
    ({ x }) => ({ y: x.slice(0, 1).permute(2, 0, 1).reshape([6, 3, 5]).flip(1) }),
    { x: [4, 5, 6] },
  )
  expect(kernels).toEqual(['strided'])
})

test('what an op changes in place is copied first', () => {
  const statistics = new ModuleBuffer([16], new Float32Array(16))
  const kernels = kernelsOf(
    ({ x }) => {
      const before = statistics.reshape([4, 4]).transpose(0, 1)
      const settings = { lr: { slot: 0 }, weightDecay: { slot: 1 } }
      const attrs = { settings, start: 0, length: 16 }
      activeTrace('test').emit(sgd, [statistics.value, x.reshape([16]).value], attrs)
      return { y: x.matmul(before) }
    },
    { x: [4, 4] },
  )
  expect(kernels).toEqual(['view', 'sgd', 'matmul'])
})

test('a linear layer over three axes takes its bias, and its bias gradient, along', () => {
  const [weight, bias] = [parameter(8, 12), parameter(8)]
  const kernels = kernelsOf(
    ({ x, dy }) => {
      const y = linear(x, weight, bias).relu()
      y.mul(dy).sum().backward()
      return { y, dw: weight.grad!, db: bias.grad! }
    },
    { x: [2, 5, 12], dy: [2, 5, 8] },
  )
  expect(kernels.filter((name) => name === 'matmul').length).toBe(2)
  expect(kernels.filter((name) => name === 'sum').length).toBe(0)
})

test('einsum of attention is one matmul', () => {
  const kernels = kernelsOf(({ q, k }) => ({ y: einsum('bthd,bshd->bhts', q, k) }), {
    q: [2, 5, 3, 4],
    k: [2, 6, 3, 4],
  })
  expect(kernels).toEqual(['matmul'])
})

test.each([
  [
    'ij,jk->ik',
    [
      [2, 3],
      [4, 5],
    ],
    /index j must have the same size in all tensors, or 1, got 3 in \[2, 3\] and 4 in \[4, 5\]/,
  ],
  ['ij->ik', [[2, 3]], /index k of the result must occur in an operand/],
  ['ij->ii', [[2, 3]], /index i may occur only once in the result/],
  ['ijk->i', [[2, 3]], /"ijk" must name the 2 dimensions/],
  ['ij,jk->ik', [[2, 3]], /expected letters for each of 1 tensors, got 2 terms/],
  ['i1->i', [[2, 3]], /expected letters/],
] as const)('einsum %s of %s is refused', (equation, shapes, text) => {
  const given = Object.fromEntries(shapes.map((shape, n) => [`x${n}`, shape as Shape]))
  expect(() =>
    kernelsOf((tensors) => ({ y: einsum(equation, ...Object.values(tensors)) }), given),
  ).toThrow(text)
})
