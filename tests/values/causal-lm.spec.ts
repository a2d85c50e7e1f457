import { describe, expect, test } from 'vitest'
import { generate } from '../../src/generation/generate.ts'
import { compile } from '../../src/graph/compile/compile.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import { AdamW } from '../../src/optim/adam.ts'
import { formulaUniform } from '../support/formula-data.ts'
import { expectGolden, type GoldenResult } from '../support/golden.ts'
import { batchOf, golden, goldenModel, types } from '../support/golden-causal-lm.ts'
import { testRuntime } from '../support/run-op.ts'

// Each structure and each peculiarity of a causal language model against PyTorch (tests/golden/causal_lm.py).

const runtime = await testRuntime()
const { batch, length, steps, lr, runs } = golden

const only = (outputs: Record<string, GoldenResult>, names: readonly string[]) =>
  Object.fromEntries(names.map((name) => [name, outputs[name]]))

/** Rows of the positions that the golden file has. */
function ends(all: Float32Array): number[] {
  const width = all.length / (batch * length)
  return Array.from({ length: batch }, (_, n) => n).flatMap((n) =>
    [0, 1, length - 1].flatMap((t) => [
      ...all.subarray((n * length + t) * width, (n * length + t + 1) * width),
    ]),
  )
}

describe.each(runs)('$name', (run) => {
  const { config, weights, outputs } = run

  test('CausalLm has hidden states, turned queries and keys, loss and gradients of PyTorch', async () => {
    const model = goldenModel(run)
    const seen: Record<string, Tensor> = {}
    const { layers, rotaryEmb } = model.model
    for (const [n, layer] of [...layers].entries())
      layer.registerForwardHook((_module, _args, x: Tensor) => {
        seen[`block${n}`] = x
      })
    rotaryEmb.registerForwardHook((_module, _args, x: Tensor) => {
      seen[seen['q'] ? (seen['k'] ? 'later' : 'k') : 'q'] = x
    })
    const own = new Map(model.namedParameters())
    const gradients = weights.map(({ key }) => [`d${key}`, own.get(key)!] as const)
    const program = await compile(
      ({ tokens, labels }) => {
        const loss = model.loss(tokens, labels, { chunk: 3 })
        loss.backward()
        const { q, k, block0, block1 } = seen
        const all = gradients.map(([name, parameter]) => [name, parameter.grad!])
        return { loss, q, k, block0, block1, ...Object.fromEntries(all) }
      },
      types,
      { runtime },
    )
    const got = (await program.run(batchOf(0, config.vocabSize))) as Record<string, Float32Array>
    program.destroy()
    const products = weights.map(({ key, seed }, i) => {
      const gradient = got[`d${key}`]
      const factors = formulaUniform(seed + 500, gradient.length, 1)
      return gradient.reduce((sum, g, at) => sum + g * factors[at], 0) / run.gradientSizes[i]
    })
    expectGolden(
      { ...got, q: ends(got['q']), k: ends(got['k']), gradients: products },
      only(outputs, ['loss', 'q', 'k', 'block0', 'block1', 'gradients']),
    )
  })

  test('CausalLm has the losses of PyTorch when it trains with checkpoints', async () => {
    const model = goldenModel(run, { checkpoint: true })
    const optimizer = new AdamW(model.parameters(), { lr })
    const program = await compile(
      ({ tokens, labels }) => {
        const loss = model.loss(tokens, labels)
        optimizer.zeroGrad()
        loss.backward()
        optimizer.step()
        return { loss }
      },
      types,
      { runtime },
    )
    const losses: number[] = []
    for (let step = 0; step < steps; step++)
      losses.push((await program.run(batchOf(step, config.vocabSize))).loss[0])
    program.destroy()
    expectGolden({ losses }, only(outputs, ['losses']))
  })

  test('generate has the tokens of PyTorch when it takes the most probable', async () => {
    const { tokens } = batchOf(0, config.vocabSize)
    const prompt = [...tokens.subarray(0, golden.prompt)]
    const options = { maxNewTokens: run.greedy.length, runtime }
    const got: number[] = []
    for await (const token of generate(goldenModel(run), prompt, options)) got.push(token)
    expect(got).toEqual(run.greedy)
  })
})
