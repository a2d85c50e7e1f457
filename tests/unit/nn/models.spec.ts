import { expect, test } from 'vitest'
import { gpt } from '../../../src/entries/nn.ts'
import { prepare } from '../../../src/graph/plan/prepare.ts'
import { cnn } from '../../../src/nn/cnn.ts'
import { mlp } from '../../../src/nn/mlp.ts'
import type { Module } from '../../../src/nn/module.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { models } from '../../support/models.ts'
import { planningTarget } from '../../support/planning-target.ts'

const shapesOf = (model: Module) =>
  Object.fromEntries([...model.namedParameters()].map(([key, { shape }]) => [key, shape]))

/** The shape of what a model gives for a batch of two. */
function outputOf(model: Module, sampleShape: readonly number[]): readonly number[] {
  let shape: readonly number[] = []
  prepare(
    planningTarget,
    ({ x }) => {
      const y = model.forward(x)
      shape = y.shape
      return { y }
    },
    { x: tensorType([2, ...sampleShape]) },
  )
  return shape
}

test('an MLP and a CNN have the given sizes, by default those of the recipes', () => {
  expect(shapesOf(mlp())).toEqual(shapesOf(models.mlp.make()))
  expect(shapesOf(mlp())).toEqual({
    '0.weight': [256, 784],
    '0.bias': [256],
    '2.weight': [10, 256],
    '2.bias': [10],
  })
  expect(shapesOf(mlp({ sizes: [4, 3, 5, 2] }))).toMatchObject({
    '0.weight': [3, 4],
    '2.weight': [5, 3],
    '4.weight': [2, 5],
  })
  expect(() => mlp({ sizes: [4] })).toThrow('mlp: expected at least two sizes, got [4]')
  expect(shapesOf(cnn())).toMatchObject({
    '0.weight': [16, 1, 3, 3],
    '3.weight': [32, 16, 3, 3],
    '7.weight': [10, 1568],
  })
  const sampleShape = [3, 13, 9] as const
  const small = cnn({ sampleShape, channels: [4, 5, 6], classes: 7 })
  expect(shapesOf(small)['10.weight']).toEqual([7, 6])
  expect(outputOf(small, sampleShape)).toEqual([2, 7])
  expect(shapesOf(cnn({ batchNorm: true }))).toMatchObject({
    '1.weight': [16],
    '4.weight': [32, 16, 3, 3],
    '5.bias': [32],
    '9.weight': [10, 1568],
  })
})

test('all built-in models are there by name', () => {
  const names = ['mlp', 'cnn', 'resnet18', 'resnet34', 'resnet50', 'gpt', 'charRnn']
  expect(Object.keys(models)).toEqual(names)
  expect(shapesOf(models.charRnn(5))['head.weight'].at(0)).toBe(5)
  const config = { vocabSize: 5, blockSize: 4, layers: 1, heads: 1, width: 2 }
  expect(shapesOf(gpt(config))).toEqual(shapesOf(models.gpt(config)))
})

test('each of them is a function of its options; mlp and cnn are recipes besides', () => {
  for (const make of Object.values(models)) expect(make).toBeTypeOf('function')
  expect(shapesOf(models.mlp())).toEqual(shapesOf(mlp()))
  expect(shapesOf(models.mlp({ sizes: [2, 3] }))).toEqual({ '0.weight': [3, 2], '0.bias': [3] })
  expect(shapesOf(models.cnn({ classes: 3 }))['7.weight']).toEqual([3, 1568])
  expect(outputOf(models.cnn.make(), models.cnn.sampleShape)).toEqual([2, models.cnn.classes])
})
