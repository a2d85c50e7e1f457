import golden from '../../tests/golden/bench.json'
import { formulaSamples, formulaUniform, formulaWord } from '../../tests/support/formula-data.ts'
import {
  type Batch,
  gptConfig,
  imageBatch,
  type StepName,
  textBatch,
  type Weights,
} from './task.ts'

/** The weights and batches that all libraries begin with, by the formulas that PyTorch's losses were made with. */

export function weightsOf(step: StepName): Weights {
  return Object.fromEntries(
    golden.steps[step].weights.map(({ key, shape, seed, bound, base }) => {
      const count = shape.reduce((product, size) => product * size, 1)
      return [key, { shape, data: formulaUniform(seed, count, bound).map((u) => base + u) }]
    }),
  )
}

/** PyTorch's float64 losses of the first steps. */
export const expectedLosses = (step: StepName): readonly number[] => golden.steps[step].losses

export const batchOf = (step: StepName, index: number): Batch =>
  step === 'gpt' ? textBatchOf(index) : imageBatchOf(index)

function imageBatchOf(index: number): Batch {
  const { images, labels } = formulaSamples(golden.images.seeds, index * imageBatch, imageBatch)
  return {
    inputs: images,
    oneHotInputs: new Float32Array(0),
    targets: labels,
    oneHotTargets: oneHot(labels, 10),
  }
}

function textBatchOf(index: number): Batch {
  const { blockSize, vocabSize } = gptConfig
  const tokenAt = (at: number) =>
    (at * 7 + (formulaWord(golden.text.tokenSeed, at) >>> 30)) % vocabSize
  const tokens = (shift: number) =>
    Int32Array.from({ length: textBatch * blockSize }, (_, i) => {
      const row = index * textBatch + Math.floor(i / blockSize)
      return tokenAt(row * (blockSize + 1) + (i % blockSize) + shift)
    })
  const inputs = tokens(0)
  const targets = tokens(1)
  return {
    inputs,
    oneHotInputs: oneHot(inputs, vocabSize),
    targets,
    oneHotTargets: oneHot(targets, vocabSize),
  }
}

function oneHot(values: Int32Array, classes: number): Float32Array<ArrayBuffer> {
  const result = new Float32Array(values.length * classes)
  values.forEach((value, row) => {
    result[row * classes + value] = 1
  })
  return result
}
