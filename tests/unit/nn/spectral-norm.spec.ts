import { describe, expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { checkpoint } from '../../../src/graph/functions/checkpoint.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { prepare } from '../../../src/graph/plan/prepare.ts'
import { autocast } from '../../../src/graph/trace/autocast.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { BatchNorm1d } from '../../../src/nn/batch-norm.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import { Linear } from '../../../src/nn/layers.ts'
import type { Module } from '../../../src/nn/module.ts'
import { GRU, LSTMCell } from '../../../src/nn/recurrent.ts'
import { spectralNorm } from '../../../src/nn/spectral-norm.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { tensorType } from '../../../src/util/shape.ts'
import golden from '../../golden/modules.json'
import { expectGolden } from '../../support/golden.ts'
import { planningTarget } from '../../support/planning-target.ts'
import { runSpectral, spectralModules } from '../../support/spectral-run.ts'

const runtime = new ReferenceRuntime()
const x23 = { x: tensorType([2, 3]) }

describe("PyTorch's steps, evaluation and state", () => {
  for (const sample of golden.spectral.cases) {
    test(sample.name, async () => {
      const keys = Object.keys(await spectralModules[sample.name]().stateDict())
      expect(keys).toEqual(sample.weights.map(({ key }) => key))
      const got = await runSpectral(sample, { runtime })
      expectGolden(got, sample.outputs)
    })
  }
})

const contents = async (module: Module, key: string) => [...(await module.stateDict())[key].data]

test('the vectors begin with length 1, the same for a seed', async () => {
  const make = () => {
    manualSeed(3)
    return spectralNorm(new Linear(300, 4))
  }
  const module = make()
  for (const [key, count] of [
    ['weight_u', 4],
    ['weight_v', 300],
  ] as const) {
    const vector = await contents(module, key)
    expect(vector).toHaveLength(count)
    expect(Math.hypot(...vector)).toBeCloseTo(1, 6)
    expect(await contents(make(), key)).toEqual(vector)
  }
})

test('iterations lead to the largest singular value, by which the weight is divided', async () => {
  const module = spectralNorm(new Linear(3, 2, { bias: false }), { nPowerIterations: 20 })
  module.loadStateDict({
    ...(await module.stateDict()),
    weight_orig: { shape: [2, 3], data: Float32Array.of(3, 0, 0, 0, 0, 5) },
  })
  const program = await compile(({ x }) => ({ y: module.forward(x) }), x23, { runtime })
  const { y } = await program.run({ x: Float32Array.of(1, 0, 0, 0, 0, 1) })
  program.destroy()
  for (const [i, expected] of [0.6, 0, 0, 1].entries()) expect(y[i]).toBeCloseTo(expected, 6)
})

test('evaluation leaves the vectors as they are; each call in training moves them', async () => {
  const module = spectralNorm(new Linear(3, 3))
  const run = async (calls: number) => {
    const program = await compile(
      ({ x }) => {
        let y = x
        for (let i = 0; i < calls; i++) y = module.forward(y)
        return { y }
      },
      x23,
      { runtime },
    )
    await program.run({ x: new Float32Array(6) })
    program.destroy()
    return [await contents(module, 'weight_u'), await contents(module, 'weight_v')]
  }
  const before = await module.stateDict()
  module.eval()
  const untouched = await run(2)
  expect(untouched).toEqual([[...before.weight_u.data], [...before.weight_v.data]])
  module.train()
  const once = await run(1)
  expect(once).not.toEqual(untouched)
  const twice = await run(1)
  module.loadStateDict(before)
  expect(await run(2)).toEqual(twice)
})

test('in a checkpoint, the vectors move once and gradients stay the same', async () => {
  const module = spectralNorm(new Linear(3, 3))
  const before = await module.stateDict()
  const run = async (isCheckpointed: boolean) => {
    module.loadStateDict(before)
    const body = (x: Tensor) => module.forward(x).relu()
    const program = await compile(
      ({ x }) => {
        const loss = (isCheckpointed ? checkpoint(body, x) : body(x)).square().sum()
        loss.backward()
        return { dw: module.parameters()[1].grad! }
      },
      x23,
      { runtime },
    )
    const { dw } = await program.run({ x: Float32Array.of(1, -2, 3, 4, 5, -6) })
    program.destroy()
    return [dw, await contents(module, 'weight_u')]
  }
  expect(await run(true)).toEqual(await run(false))
})

test('a recurrent layer, a cell and a batch normalization read their normalized weights', () => {
  const gru = spectralNorm(new GRU(3, 2), { name: 'weight_hh_l0' })
  const cell = spectralNorm(new LSTMCell(3, 2), { name: 'weight_ih' })
  const norm = spectralNorm(new BatchNorm1d(3))
  const { calls } = prepare(
    planningTarget,
    ({ x }) => ({
      a: gru.withState(x.reshape([1, 2, 3])).hn,
      b: cell.withState(x).hn,
      c: norm.forward(x),
    }),
    x23,
  )
  expect(calls.filter(({ op }) => op.name === 'powerIteration')).toHaveLength(3)
})

test('under autocast the singular value is still measured in float32', () => {
  const module = spectralNorm(new Linear(4, 4))
  const { calls } = prepare(
    planningTarget,
    ({ x }) => ({ y: autocast({ enabled: true }, () => module.forward(x)) }),
    { x: tensorType([4, 4]) },
  )
  const products = calls
    .filter(({ op }) => op.name === 'matmul')
    .map(({ call }) => call.inputs.slice(0, 2))
  expect(products.map((inputs) => inputs.map(({ dtype }) => dtype))).toEqual([
    ['f32', 'f32'],
    ['f16', 'f16'],
  ])
})

test('the gradient does not flow through the vectors', () => {
  const module = spectralNorm(new Linear(3, 2))
  const optimizer = new SGD(module.parameters())
  const { nodes } = prepare(
    planningTarget,
    ({ x }) => {
      const loss = module.forward(x).sum()
      loss.backward()
      optimizer.step()
      return { loss }
    },
    x23,
  )
  // Beside the product with v: y, dweight, and the outer product of u and v.
  expect(nodes.filter(({ op }) => op.name === 'matmul').length).toBeLessThanOrEqual(4)
  expect(nodes.filter(({ op }) => op.name === 'powerIteration')).toHaveLength(1)
})

test('refuses what it cannot normalize', () => {
  expect(() => spectralNorm(spectralNorm(new Linear(2, 2)))).toThrow(/already normalized/)
  expect(() => spectralNorm(new Linear(2, 2, { bias: false }), { name: 'bias' })).toThrow(
    /parameter in the property "bias", got none/,
  )
  expect(() => spectralNorm(new Linear(2, 2), { name: 'training' })).toThrow(/got boolean/)
  for (const nPowerIterations of [0, -1, 1.5]) {
    expect(() => spectralNorm(new Linear(2, 2), { nPowerIterations })).toThrow(
      /at least 1 power iteration/,
    )
  }
  expect(() => spectralNorm(new Linear(2, 0))).toThrow(/at least 1 element, got 1 on \[0, 2\]/)
  expect(() => spectralNorm(new Linear(2, 2), { dim: 2 })).toThrow(/spectralNorm of Linear/)
})

test('the weight can be read only during a call', () => {
  const module = spectralNorm(new Linear(3, 2))
  expect(() => module.weight).toThrow(
    /^Linear\.weight: works only inside a function passed to compile/,
  )
  prepare(
    planningTarget,
    ({ x }) => {
      expect(() => module.weight).toThrow(/exists only during a call of forward.*weight_orig/)
      const y = module.forward(x)
      expect(module.weight.shape).toEqual([2, 3])
      return { y }
    },
    x23,
  )
})

test('a weight that is computed cannot be set', () => {
  const module = spectralNorm(new Linear(3, 3))
  const set = () => Object.assign(module, { weight: new Parameter([3, 3], new Float32Array(9)) })
  expect(set).toThrow('Linear.weight: spectralNorm computes it from "weight_orig"')
})
