import { expect, test } from 'vitest'
import { Parameter } from '../../../src/entries/nn.ts'
import {
  broadcastShapes,
  countElements,
  formatShape,
  sameShape,
  stridesOf,
  tensorType,
  unify,
} from '../../../src/util/shape.ts'

test('counts, strides and text', () => {
  expect(countElements([])).toBe(1)
  expect(countElements([3, 0, 2])).toBe(0)
  expect(stridesOf([2, 3, 4])).toEqual([12, 4, 1])
  expect(formatShape([64, 784])).toBe('[64, 784]')
  expect(sameShape([1, 2], [1, 2])).toBe(true)
  expect(sameShape([1, 2], [2])).toBe(false)
})

test('broadcasting fits ones and missing axes, an empty axis included', () => {
  expect(broadcastShapes('x', [4, 1], [3])).toEqual([4, 3])
  expect(broadcastShapes('x', [0, 3], [1, 3])).toEqual([0, 3])
  expect(() => broadcastShapes('x', [0, 3], [2, 3])).toThrow(/dimension 0/)
})

test('unify binds letters, and a clash names the letter and both tensors', () => {
  expect(
    unify('matmul', [
      ['a', 'M K', [128, 64]],
      ['b', 'K N', [64, 10]],
    ]),
  ).toEqual({ M: 128, K: 64, N: 10 })
  expect(() =>
    unify('matmul', [
      ['a', 'M K', [128, 64]],
      ['b', 'K N', [32, 10]],
    ]),
  ).toThrow('matmul: K must agree, got 64 in a[128, 64] and 32 in b[32, 10]')
  expect(() => unify('matmul', [['a', 'M K', [5]]])).toThrow(/a must have 2 dimensions/)
})

test.each(['float32', 'i64'])('a dtype %s is refused', (dtype) => {
  expect(() => tensorType([2], dtype as never)).toThrow(
    `tensorType: dtype must be one of f32, i32, u32, f16, got "${dtype}".`,
  )
})

test('a tensor type keeps its shape when the list that it was made of, or shows, is written', () => {
  const given = [2, 3]
  const parameter = new Parameter(given, new Float32Array(6))
  given[0] = 7
  expect(() => Object.assign(parameter.shape, { 0: 7 })).toThrow('read only')
  expect(parameter.shape).toEqual([2, 3])
})
