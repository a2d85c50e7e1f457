import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { formulaSamples, formulaUniform, formulaWord } from '../../support/formula-data.ts'

// Python's numbers are in the file: a difference here means that the trajectories compare different problems.
const { data, check } = JSON.parse(
  readFileSync(new URL('../../golden/trajectories.json', import.meta.url), 'utf8'),
)

test('words and weights by formula are those of tests/golden/formula.py', () => {
  const { seed, indices, values } = check.words
  expect(indices.map((index: number) => formulaWord(seed, index))).toEqual(values)
  const { uniform } = check
  expect([...formulaUniform(uniform.seed, uniform.values.length, uniform.bound)]).toEqual(
    uniform.values,
  )
})

test('images and labels by formula are those of tests/golden/formula.py', () => {
  const { first, count } = data.evaluation
  const { images, labels } = formulaSamples(data.seeds, first, count)
  expect([...labels]).toEqual(check.labels)
  expect([...images.subarray(0, 8)]).toEqual(check.imageHead)
  expect(images.reduce((sum, pixel) => sum + Math.round(pixel * 255), 0)).toBe(check.imageSum)
})
