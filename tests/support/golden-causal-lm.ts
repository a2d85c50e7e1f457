import { CausalLm, type CausalLmOptions } from '../../src/nn/causal-lm.ts'
import type { CausalLmConfig } from '../../src/nn/causal-lm-config.ts'
import { tensorType } from '../../src/util/shape.ts'
import text from '../golden/causal-lm.json?raw'
import { formulaUniform, formulaWord } from './formula-data.ts'
import type { GoldenResult } from './golden.ts'

// Small language models that PyTorch trained (tests/golden/causal_lm.py).

export interface CausalLmRun {
  readonly name: string
  readonly config: CausalLmConfig
  readonly weights: { key: string; shape: number[]; seed: number; bound: number; base: number }[]
  readonly outputs: Record<string, GoldenResult>
  readonly gradientSizes: number[]
  readonly greedy: number[]
}

export const golden = JSON.parse(text) as {
  batch: number
  length: number
  steps: number
  lr: number
  tokenSeed: number
  prompt: number
  runs: CausalLmRun[]
}

const { batch, length } = golden
const ignored = -100

/** The model with the weights that PyTorch began with. */
export function goldenModel({ config, weights }: CausalLmRun, options?: CausalLmOptions): CausalLm {
  const model = new CausalLm(config, options)
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

/** Tokens of a step, and labels without the first tokens of the first sample. */
export function batchOf(step: number, vocabulary: number) {
  const tokens = Int32Array.from({ length: batch * length }, (_, i) => {
    const at = step * batch * length + i
    return (at * 7 + (formulaWord(golden.tokenSeed, at) >>> 30)) % vocabulary
  })
  return { tokens, labels: tokens.map((token, i) => (i < 3 ? ignored : token)) }
}

const type = tensorType([batch, length], 'i32')
export const types = { tokens: type, labels: type }
