import { crossEntropy } from '../../src/graph/functions/losses.ts'
import type { TracedFunction } from '../../src/graph/plan/prepare.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import type { Gpt, GptConfig } from '../../src/nn/gpt.ts'
import type { Module } from '../../src/nn/module.ts'
import type { AdamW } from '../../src/optim/adam.ts'
import { tensorType } from '../../src/util/shape.ts'
import goldenText from '../golden/attention.json?raw'
import { formulaUniform, formulaWord } from './formula-data.ts'
import type { GoldenResult } from './golden.ts'
import { models } from './models.ts'

// A GPT that PyTorch trained (tests/golden/attention.py).

export interface GptRun {
  readonly config: GptConfig
  readonly batchSize: number
  readonly steps: number
  readonly lr: number
  readonly tokenSeed: number
  readonly weights: { key: string; shape: number[]; seed: number; bound: number; base: number }[]
  readonly losses: number[]
  readonly distances: number[]
  readonly finalLogits: GoldenResult
}

export const { gpt: run } = JSON.parse(goldenText) as { gpt: GptRun }
export const length = run.config.blockSize

/** The model with the weights that PyTorch began with. */
export function goldenGpt(more: Partial<GptConfig> = {}, weights = run.weights): Gpt {
  const model = models.gpt({ ...run.config, ...more })
  model.loadStateDict(
    Object.fromEntries(
      weights.map(({ key, shape, seed, bound, base }) => {
        const count = shape.reduce((product, size) => product * size, 1)
        return [key, { shape, data: formulaUniform(seed, count, bound).map((u) => base + u) }]
      }),
    ),
  )
  return model
}

export const tokenAt = (index: number): number =>
  (index * 7 + (formulaWord(run.tokenSeed, index) >>> 30)) % run.config.vocabSize

/** Tokens and the next ones of a step's samples [first, first + count). */
export function batchOf(step: number, first = 0, count = run.batchSize) {
  const at = (row: number, t: number) =>
    tokenAt((step * run.batchSize + first + row) * (length + 1) + t)
  const cells = Array.from({ length: count * length }, (_, i) => [
    Math.floor(i / length),
    i % length,
  ])
  return {
    tokens: Int32Array.from(cells, ([row, t]) => at(row, t)),
    targets: Int32Array.from(cells, ([row, t]) => at(row, t + 1)),
  }
}

export const stepTypes = (rows = run.batchSize) => ({
  tokens: tensorType([rows, length], 'i32'),
  targets: tensorType([rows * length], 'i32'),
})

export const lossOf = (model: Module, { tokens, targets }: Record<string, Tensor>): Tensor =>
  crossEntropy(model.forward(tokens).reshape([-1, run.config.vocabSize]), targets)

export const trainingStep =
  (model: Module, optimizer: AdamW): TracedFunction =>
  (inputs) => {
    const loss = lossOf(model, inputs)
    optimizer.zeroGrad()
    loss.backward()
    optimizer.step()
    return { loss }
  }
