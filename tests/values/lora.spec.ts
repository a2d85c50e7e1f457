import { expect, test } from 'vitest'
import { compile } from '../../src/graph/compile/compile.ts'
import { AdamW } from '../../src/optim/adam.ts'
import { allowedDistance, expectGolden } from '../support/golden.ts'
import {
  adapted,
  batchOf,
  cases,
  factorsOf,
  lossOf,
  lr,
  probe,
  typesOf,
} from '../support/golden-lora.ts'
import { testRuntime } from '../support/run-op.ts'

test.each(cases)(
  "the adapters of $name have PyTorch's gradients, moments, losses and outputs, merged and not",
  async (given) => {
    const runtime = await testRuntime()
    const model = adapted(given)
    const factors = factorsOf(model)
    const got: Record<string, ArrayLike<number>> = {}
    got.first = await probe(given, (x) => model.forward(x), runtime)

    const gradients = await compile(
      (inputs) => {
        lossOf(model, inputs).backward()
        return Object.fromEntries(factors.map(([key, { grad }]) => [`gradient ${key}`, grad!]))
      },
      typesOf(given),
      { runtime },
    )
    Object.assign(got, await gradients.run(batchOf(given, 0)))
    gradients.destroy()

    const optimizer = new AdamW(model.parameters(), { lr })
    const program = await compile(
      (inputs) => {
        const loss = lossOf(model, inputs)
        optimizer.zeroGrad()
        loss.backward()
        optimizer.step()
        return { loss }
      },
      typesOf(given),
      { runtime },
    )
    const all = model.parameters()
    const frozen = all.filter(({ requiresGrad }) => !requiresGrad)
    const before = await Promise.all(frozen.map((parameter) => parameter.read()))
    for (const [step, expected] of given.losses.entries()) {
      const { loss } = await program.run(batchOf(given, step))
      const allowed = allowedDistance(given.distances[step], [expected])
      expect(Math.abs(loss[0] - expected), `step ${step + 1}`).toBeLessThanOrEqual(allowed)
      if (step > 0) continue
      const { state } = await optimizer.stateDict()
      expect(Object.keys(state)).toHaveLength(factors.length)
      for (const [key, factor] of factors)
        for (const moment of ['exp_avg', 'exp_avg_sq']) {
          const entry = state[all.indexOf(factor)][moment] as { data: Float32Array }
          got[`${moment} ${key}`] = entry.data
        }
    }
    program.destroy()
    got.unmerged = await probe(given, (x) => model.forward(x), runtime)
    const after = await Promise.all(frozen.map((parameter) => parameter.read()))
    expect(after).toEqual(before)
    const base = await model.mergeAndUnload()
    got.merged = await probe(given, (x) => base.forward(x), runtime)
    expect(base.parameters()).toHaveLength(frozen.length)
    expectGolden(got, given.outputs)
  },
)
