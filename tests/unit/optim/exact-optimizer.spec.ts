import { describe, expect, test, vi } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { crossEntropy } from '../../../src/graph/functions/linear.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import { Linear, ReLU } from '../../../src/nn/layers.ts'
import { Sequential } from '../../../src/nn/module.ts'
import { AdamW } from '../../../src/optim/adam.ts'
import { ExactOptimizer, type ExactSettings } from '../../../src/optim/exact/exact-optimizer.ts'
import { vectorArrays } from '../../../src/optim/exact/vector-update.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { updateStep } from '../../support/update-step.ts'

const types = { x: tensorType([2, 3]), y: tensorType([2], 'i32') }
const inputs = { x: Float32Array.of(1, 2, 3, -1, 0, 2), y: Int32Array.of(0, 1) }

const settings: Record<'adamw' | 'sgd', ExactSettings> = {
  adamw: { kind: 'adamw', lr: 0.01, betas: [0.9, 0.999], eps: 1e-8, weightDecay: 0.01 },
  sgd: { kind: 'sgd', lr: 0.01, momentum: 0.9 },
}

/** The first weight is frozen. */
function tower(): Sequential {
  manualSeed(4)
  const model = new Sequential(new Linear(3, 4), new ReLU(), new Linear(4, 2))
  model.parameters()[0].requiresGrad = false
  return model
}

describe.each(['adamw', 'sgd'] as const)('ExactOptimizer with %s', (kind) => {
  test("loads a plain optimizer's state when a parameter is frozen", async () => {
    const model = tower()
    const parameters = model.parameters()
    const plain =
      kind === 'adamw'
        ? new AdamW(parameters, { lr: 0.01 })
        : new SGD(parameters, { lr: 0.01, momentum: 0.9 })
    const lossOf = ({ x, y }: Record<string, Tensor>) => crossEntropy(model.forward(x) as Tensor, y)
    const step = await compile(updateStep(plain, lossOf), types, { device: 'reference' })
    await step.run(inputs)
    const saved = await plain.stateDict()
    expect(Object.keys(saved.state)).toEqual(['1', '2', '3'])

    const exact = new ExactOptimizer(tower().parameters(), settings[kind])
    exact.loadStateDict(saved)
    expect((await exact.stateDict()).state).toEqual(saved.state)
    step.destroy()
  })

  test('saves only parameters that were updated, and loads zeros for the others', async () => {
    const own = new ExactOptimizer(tower().parameters(), settings[kind])
    const before = await own.stateDict()
    await own.read()
    own.begin()
    own.update(0, Int32Array.of(1, 2, 3, 4), Int32Array.of(8), 1)
    const { state, param_groups } = await own.stateDict()
    expect(Object.keys(state)).toEqual(['1'])
    // The frozen weight of 12 elements has no moments.
    expect(own.moments[0]).toHaveLength(4)

    const other = new ExactOptimizer(tower().parameters(), settings[kind])
    other.loadStateDict({ state, param_groups })
    expect(await other.stateDict()).toEqual({ state, param_groups })
    own.loadStateDict(before)
    for (const moment of own.moments) expect(moment.every((value) => value === 0)).toBe(true)
  })

  test('computes the same bits when WebAssembly is missing', async () => {
    const stepped = async () => {
      const optimizer = new ExactOptimizer(tower().parameters(), settings[kind])
      await optimizer.read()
      for (const sum of [3, -7]) {
        optimizer.begin()
        optimizer.update(0, Int32Array.of(1, sum, 3, 4), Int32Array.of(24), 3)
      }
      return { ...(await optimizer.stateDict()), values: await optimizer.read() }
    }
    const byVectors = await stepped()
    vi.stubGlobal('WebAssembly', undefined)
    expect(vectorArrays([1])).toBeUndefined()
    expect(await stepped()).toEqual(byVectors)
    vi.unstubAllGlobals()
    expect(vectorArrays([1])).toBeDefined()
  })

  test('refuses the state of another number of parameters', async () => {
    const { param_groups } = await new ExactOptimizer(
      tower().parameters().slice(1),
      settings[kind],
    ).stateDict()
    const exact = new ExactOptimizer(tower().parameters(), settings[kind])
    expect(() => exact.loadStateDict({ state: {}, param_groups })).toThrow(
      /groups of \[4\] parameters, got \[3\]/,
    )
  })
})
