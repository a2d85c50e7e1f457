import { describe, expect, test } from 'vitest'
import { compile } from '../../src/graph/compile/compile.ts'
import * as activations from '../../src/graph/functions/activations.ts'
import { stepScalar } from '../../src/graph/functions/linear.ts'
import * as losses from '../../src/graph/functions/losses.ts'
import * as reductions from '../../src/graph/functions/reductions.ts'
import { Parameter } from '../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import * as modules from '../../src/nn/activations.ts'
import * as lossModules from '../../src/nn/losses.ts'
import type { Module } from '../../src/nn/module.ts'
import { elementwiseCalls, elementwiseCases } from '../support/elementwise-calls.ts'
import { valuesOf } from '../support/golden.ts'
import { type CallCase, problemsOfCall } from '../support/golden-call.ts'
import { seedCases, titleOf } from '../support/golden-seeds.ts'
import { testRuntime } from '../support/run-op.ts'

// What people call, forward and backward through compile(), against PyTorch's float64 results (tests/golden/elementwise.py):
// within 8 times the distance of PyTorch's own float32 results.

describe('against PyTorch', () => {
  for (const golden of [...elementwiseCases, ...seedCases<CallCase>('elementwise')]) {
    test(titleOf(golden), async () => {
      const where = { runtime: await testRuntime() }
      expect(await problemsOfCall(golden, elementwiseCalls, where)).toEqual([])
    })
  }
})

test('a mean loss is one dispatch forward and two with its gradient', async () => {
  const golden = elementwiseCases.find(({ name }) => name === 'mse, mean')!
  const runtime = await testRuntime()
  const weight = new Parameter([3, 5], Float32Array.from(valuesOf(golden.inputs['input'])))
  const program = await compile(
    ({ target }) => {
      const loss = losses.mseLoss(weight, target)
      loss.backward()
      return { loss, gradient: weight.grad! }
    },
    { target: { shape: [3, 5], dtype: 'f32' } },
    { runtime },
  )
  // The loss, the step scalar that gradients begin with, the gradient.
  expect(program.dispatchCount).toBe(3)
  program.destroy()
})

test('reductions of chains are one pass over memory each', async () => {
  const counts: Record<string, [(x: Tensor) => Tensor, number]> = {
    mean: [(x) => x.mul(2).add(1).mean(1), 1],
    norm: [(x) => reductions.norm(x, 2, 0), 1],
    variance: [(x) => reductions.variance(x, 1), 2],
    std: [(x) => reductions.std(x, [0, 1]), 2],
    logsumexp: [(x) => reductions.logsumexp(x), 1],
    softmax: [(x) => x.softmax(1), 1],
    'max along an axis': [(x) => x.max(1).values, 1],
    argmax: [(x) => x.argmax(0), 1],
    'a number that each run gives': [(x) => x.mul(stepScalar('factor', 2)).add(1), 2],
  }
  const runtime = await testRuntime()
  for (const [name, [fn, expected]] of Object.entries(counts)) {
    const types = { x: { shape: [5, 7], dtype: 'f32' } } as const
    const program = await compile(({ x }) => ({ y: fn(x) }), types, { runtime })
    expect(program.dispatchCount, name).toBe(expected)
    program.destroy()
  }
})

test('modules compute what the functions compute', async () => {
  const pairs: [Module, (x: Tensor, target: Tensor, labels: Tensor) => Tensor][] = [
    [new modules.LeakyReLU(0.3), (x) => activations.leakyRelu(x, 0.3)],
    [new modules.GELU(), (x) => activations.gelu(x)],
    [new modules.GELU({ approximate: 'tanh' }), (x) => activations.gelu(x, 'tanh')],
    [new modules.SiLU(), activations.silu],
    [new modules.Sigmoid(), activations.sigmoid],
    [new modules.Tanh(), activations.tanh],
    [new modules.Softplus(2), (x) => activations.softplus(x, 2)],
    [new modules.Softmax(1), (x) => activations.softmax(x, 1)],
    [new modules.LogSoftmax(-1), (x) => activations.logSoftmax(x, 1)],
    [new lossModules.MSELoss({ reduction: 'sum' }), (x, t) => losses.mseLoss(x, t).mul(6)],
    [new lossModules.L1Loss(), (x, t) => losses.l1Loss(x, t)],
    [new lossModules.HuberLoss({ delta: 2 }), (x, t) => losses.huberLoss(x, t, { delta: 2 })],
    [new lossModules.SmoothL1Loss({ beta: 2 }), (x, t) => losses.smoothL1Loss(x, t, { beta: 2 })],
    [new lossModules.BCELoss(), (x, t) => losses.binaryCrossEntropy(x, t)],
    [
      new lossModules.BCEWithLogitsLoss({ posWeight: [3, 3, 3] }),
      (x, t) => losses.binaryCrossEntropyWithLogits(x, t, { posWeight: 3 }),
    ],
    [
      new lossModules.KLDivLoss({ reduction: 'batchmean' }),
      (x, t) => losses.klDiv(x, t, { reduction: 'batchmean' }),
    ],
    [
      new lossModules.NLLLoss({ reduction: 'none' }),
      (x, _, labels) => losses.nllLoss(x, labels, { reduction: 'none' }),
    ],
    [
      new lossModules.CrossEntropyLoss({ weight: [2, 2, 2], labelSmoothing: 0.1 }),
      (x, _, labels) => losses.crossEntropy(x, labels, { labelSmoothing: 0.1 }),
    ],
  ]
  const program = await compile(
    ({ x, target, labels }) =>
      Object.fromEntries(
        pairs.flatMap(([module, fn], n) => {
          const isClasses = /NLL|CrossEntropyLoss/.test(module.constructor.name)
          const others = /Loss$/.test(module.constructor.name) ? [isClasses ? labels : target] : []
          return [
            [`module ${n}`, module.forward(x, ...others)],
            [`function ${n}`, fn(x, target, labels)],
          ]
        }),
      ),
    {
      x: { shape: [2, 3], dtype: 'f32' },
      target: { shape: [2, 3], dtype: 'f32' },
      labels: { shape: [2], dtype: 'i32' },
    },
    { runtime: await testRuntime() },
  )
  const got = await program.run({
    x: Float32Array.of(0.3, 0.6, 0.9, 0.1, 0.2, 0.8),
    target: Float32Array.of(0.5, 0.1, 0.4, 0.9, 0.05, 0.3),
    labels: Int32Array.of(2, 0),
  })
  pairs.forEach(([module], n) => {
    const [own, other] = [got[`module ${n}`], got[`function ${n}`]]
    expect(own.length).toBe(other.length)
    own.forEach((value, at) => {
      expect(value, `${module.constructor.name} [${at}]`).toBeCloseTo(other[at], 5)
    })
  })
  const weighted = new lossModules.CrossEntropyLoss({ weight: [1, 2, 3] })
  expect(Object.keys(await weighted.stateDict())).toEqual(['weight'])
  program.destroy()
})
