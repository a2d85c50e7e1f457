import { describe, expect, test } from 'vitest'
import { chooseToken } from '../../../src/generation/choose-token.ts'
import { generate } from '../../../src/generation/generate.ts'
import type { GenerateOptions } from '../../../src/generation/generate-options.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { getPeftModel } from '../../../src/nn/lora/peft-model.ts'
import { RandomStream } from '../../../src/util/random.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { golden, goldenModel } from '../../support/golden-causal-lm.ts'
import { testRuntime } from '../../support/run-op.ts'

const runtime = await testRuntime()
const [run] = golden.runs
const wide = { ...run, config: { ...run.config, maxPositionEmbeddings: 64 } }

async function all(prompt: number[], options: GenerateOptions): Promise<number[]> {
  const got: number[] = []
  for await (const token of generate(goldenModel(wide), prompt, { runtime, ...options }))
    got.push(token)
  return got
}

describe('chooseToken', () => {
  /** How often each of 4 tokens is drawn in 2,000 draws, as shares. */
  function shares(
    choice: Partial<Parameters<typeof chooseToken>[2]>,
    seen: number[] = [],
  ): number[] {
    const stream = new RandomStream(3, 0)
    const counts = [0, 0, 0, 0]
    const all = { temperature: 1, topK: 4, topP: 1, repetitionPenalty: 1, ...choice }
    for (let i = 0; i < 2000; i++) {
      const logits = Float32Array.from([0.4, 0.3, 0.2, 0.1], Math.log)
      counts[chooseToken(logits, new Set(seen), all, stream)]++
    }
    return counts.map((count) => Math.round(count / 200) / 10)
  }

  test('chooseToken draws by probability, among the topK, and among those of topP', () => {
    expect(shares({})).toEqual([0.4, 0.3, 0.2, 0.1])
    expect(shares({ topK: 2 })).toEqual([0.6, 0.4, 0, 0])
    expect(shares({ topP: 0.75 })).toEqual([0.4, 0.3, 0.2, 0])
    expect(shares({ topP: 0.01 })).toEqual([1, 0, 0, 0])
    expect(shares({ temperature: 0.5 })).toEqual([0.5, 0.3, 0.1, 0])
  })

  test('chooseToken takes the best at temperature 0, and another when that is penalized', () => {
    expect(shares({ temperature: 0 })).toEqual([1, 0, 0, 0])
    expect(shares({ temperature: 0, repetitionPenalty: 2 }, [0])).toEqual([0, 1, 0, 0])
  })
})

describe('generate', () => {
  test('generate continues a prompt of several chunks as the whole model does', async () => {
    const prompt = Array.from({ length: 41 }, (_, i) => (i * 5) % run.config.vocabSize)
    const got = await all(prompt, { maxNewTokens: 3 })
    const model = goldenModel(wide)
    const length = prompt.length + 2
    const program = await compile(
      ({ tokens }) => ({ best: model.forward(tokens).argmax(2) }),
      { tokens: tensorType([1, length], 'i32') },
      { runtime },
    )
    const { best } = await program.run({ tokens: Int32Array.from([...prompt, ...got.slice(0, 2)]) })
    program.destroy()
    expect(got).toEqual([...best.slice(-3)])
  })

  test('generate draws the same tokens from the same seed, and ends before a stop token', async () => {
    const options = { maxNewTokens: 6, temperature: 1 }
    const first = await all([1, 2], { ...options, seed: 7 })
    expect(await all([1, 2], { ...options, seed: 7 })).toEqual(first)
    expect(await all([1, 2], { ...options, seed: 8 })).not.toEqual(first)
    const at = first.indexOf(first[3])
    expect(await all([1, 2], { ...options, seed: 7, stopTokens: [first[3]] })).toEqual(
      first.slice(0, at),
    )
  })

  test('generate answers with the adapter of a model, and as its base with disableAdapter', async () => {
    const model = getPeftModel(goldenModel(wide), {
      targetModules: 'all-linear',
      initLoraWeights: false,
      loraAlpha: 64,
    })
    const said = async (options: GenerateOptions) => {
      const got: number[] = []
      for await (const token of generate(model, [1, 2], { runtime, maxNewTokens: 8, ...options }))
        got.push(token)
      return got
    }
    const base = await all([1, 2], { maxNewTokens: 8 })
    expect(await said({ disableAdapter: true })).toEqual(base)
    expect(await said({})).not.toEqual(base)
  })

  test('generate refuses more tokens than the model has positions for', async () => {
    await expect(all([1, 2], { maxNewTokens: 63 })).rejects.toThrow(/up to 64 .* got 2 and 63/)
    await expect(all([], {})).rejects.toThrow(/expected 1 or more tokens/)
    await expect(all([29], {})).rejects.toThrow(/tokens from 0 to 28/)
  })
})
