import { describe, expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { crossEntropy } from '../../../src/graph/functions/losses.ts'
import { prepare } from '../../../src/graph/plan/prepare.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { matmul } from '../../../src/kernels/matmul/matmul.ts'
import type { Op } from '../../../src/kernels/op.ts'
import { gpt } from '../../../src/nn/gpt.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import { Linear, ReLU } from '../../../src/nn/layers.ts'
import type { LoraConfig } from '../../../src/nn/lora/config.ts'
import { getPeftModel, type PeftModel } from '../../../src/nn/lora/peft-model.ts'
import { Sequential } from '../../../src/nn/module.ts'
import { resnet18 } from '../../../src/nn/resnet.ts'
import { AdamW } from '../../../src/optim/adam.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { factorsOf } from '../../support/golden-lora.ts'
import { planningTarget } from '../../support/planning-target.ts'
import { testRuntime } from '../../support/run-op.ts'

const mlp = () =>
  new Sequential(new Linear(6, 10), new ReLU(), new Linear(10, 8), new ReLU(), new Linear(8, 4))
const tokens = () => gpt({ vocabSize: 11, blockSize: 4, layers: 2, heads: 2, width: 8 })
const layersOf = (model: PeftModel, name = 'default') => [...model.adaptedLayers(name).keys()]
const targets = (targetModules: LoraConfig['targetModules']) => ({ targetModules })

const types = { x: tensorType([5, 6]), y: tensorType([5], 'i32') }
const batch = { x: new Float32Array(30).fill(0.3), y: Int32Array.of(0, 1, 2, 3, 0) }

async function outputOf(
  model: { forward(x: Tensor): Tensor },
  forward = (x: Tensor) => model.forward(x),
) {
  const program = await compile(
    (given) => ({ y: forward(given.x) }),
    { x: types.x },
    { device: 'reference' },
  )
  const { y } = await program.run({ x: batch.x })
  program.destroy()
  return [...y]
}

describe('targets', () => {
  test('are names that paths are or end with, patterns of whole paths, or all but the head', () => {
    expect(layersOf(getPeftModel(mlp(), targets(['0', '4'])))).toEqual(['0', '4'])
    expect(layersOf(getPeftModel(mlp(), targets('all-linear')))).toEqual(['0', '2'])
    expect(layersOf(getPeftModel(resnet18({ width: 4 }), targets(['fc'])))).toEqual(['fc'])
    const ofBlock = (of: LoraConfig['targetModules']) =>
      layersOf(getPeftModel(tokens(), targets(of)))
    expect(ofBlock(['c_attn'])).toEqual([0, 1].map((i) => `transformer.h.${i}.attn.c_attn`))
    expect(ofBlock('.*\\.0\\.mlp\\.c_(fc|proj)')).toEqual(
      ['c_fc', 'c_proj'].map((name) => `transformer.h.0.mlp.${name}`),
    )
    expect(ofBlock(/transformer\.h\.1\..*proj/)).toEqual(
      ['attn', 'mlp'].map((name) => `transformer.h.1.${name}.c_proj`),
    )
    // The head shares the table of tokens, which is no linear layer.
    expect(ofBlock('all-linear')).toHaveLength(8)
  })

  test('that name nothing, or no linear layer, are an error that lists the linear layers', () => {
    expect(() => getPeftModel(tokens(), targets(['c_attn', 'q_proj']))).toThrow(
      'getPeftModel: targetModules: no layer of the model has the name "q_proj". The linear layers are transformer.h.*.attn.c_attn, transformer.h.*.attn.c_proj, transformer.h.*.mlp.c_fc, transformer.h.*.mlp.c_proj.',
    )
    expect(() => getPeftModel(mlp(), targets('c_attn'))).toThrow(
      /no layer .* "c_attn".*are 0, 2, 4/,
    )
    expect(() => getPeftModel(mlp(), targets([]))).toThrow(/the list is empty/)
    expect(() => getPeftModel(mlp(), targets(['1']))).toThrow(/"1" is a ReLU, and only Linear/)
    expect(() => getPeftModel(mlp(), targets('*'))).toThrow(/must be a regular expression/)
    expect(() => getPeftModel(mlp(), { targetModules: ['0'], r: 0 })).toThrow(/r must be a whole/)
    expect(() => getPeftModel(mlp(), { targetModules: ['0'], modulesToSave: ['head'] })).toThrow(
      /modulesToSave: no module has the name "head"/,
    )
    const model = getPeftModel(mlp(), targets(['0']))
    for (const taken of [model, model.baseModel])
      expect(() => getPeftModel(taken, targets(['2']))).toThrow(/has adapters already/)
  })
})

test('a new adapter has A within 1 / sqrt(in), B zero, and changes nothing', async () => {
  manualSeed(3)
  const base = mlp()
  const before = await outputOf(base)
  const model = getPeftModel(base, { targetModules: ['0', '2'], r: 4, loraDropout: 0.5 })
  const [[key, a], [, b]] = factorsOf(model)
  expect([key, a.shape, b.shape]).toEqual(['0.lora_A.weight', [4, 6], [10, 4]])
  const [down, up] = [await a.read(), await b.read()]
  expect(Math.max(...down)).toBeLessThanOrEqual(1 / Math.sqrt(6))
  expect(Math.max(...down)).toBeGreaterThan(0.3)
  expect(up.every((value) => value === 0)).toBe(true)
  expect(await outputOf(model)).toEqual(before)
  const named = [...model.namedParameters()].map(([name]) => name)
  expect(named.slice(0, 4)).toEqual([
    'base_model.0.weight',
    'base_model.0.bias',
    'base_model.0.lora_A.default.weight',
    'base_model.0.lora_B.default.weight',
  ])
  const other = getPeftModel(mlp(), { targetModules: ['0'], initLoraWeights: false })
  expect((await factorsOf(other)[1][1].read()).some((value) => value !== 0)).toBe(true)
})

test('dropout of an adapter acts in training alone', async () => {
  const model = getPeftModel(mlp(), { targetModules: ['0'], loraDropout: 0.9 })
  factorsOf(model)[1][1].assign(new Float32Array(80).fill(1))
  const trained = await outputOf(model)
  model.eval()
  const evaluated = await outputOf(model)
  expect(trained).not.toEqual(evaluated)
  expect(await outputOf(model)).toEqual(evaluated)
})

describe('several adapters', () => {
  async function pair() {
    manualSeed(5)
    const base = mlp()
    const alone = await outputOf(base)
    const model = getPeftModel(base, targets(['0']), 'first')
    model.addAdapter('second', { targetModules: ['0', '2'], r: 2, loraAlpha: 3 })
    for (const name of ['first', 'second'])
      for (const [, factor] of factorsOf(model, name))
        factor.assign(new Float32Array(factor.count).fill(name === 'first' ? 0.1 : 0.2))
    return { model, alone }
  }

  test('the active one alone is added and trained', async () => {
    const { model, alone } = await pair()
    const first = await outputOf(model)
    expect(model.activeAdapter).toBe('first')
    const trained = () =>
      [...model.namedParameters()].flatMap(([name, { requiresGrad }]) =>
        requiresGrad ? [name] : [],
      )
    expect(trained()).toEqual(['A', 'B'].map((f) => `base_model.0.lora_${f}.first.weight`))
    model.setAdapter('second')
    const second = await outputOf(model)
    expect(trained()).toHaveLength(4)
    const off = await outputOf(model, (x) => model.disableAdapter(() => model.forward(x)))
    expect(off).toEqual(alone)
    for (const [one, other] of [
      [first, second],
      [first, alone],
      [second, alone],
    ])
      expect(one).not.toEqual(other)
    model.deleteAdapter('second')
    expect([model.activeAdapter, layersOf(model, 'first')]).toEqual(['first', ['0']])
    expect(await outputOf(model)).toEqual(first)
    model.deleteAdapter('first')
    expect(await outputOf(model)).toEqual(alone)
    expect(() => model.setAdapter('first')).toThrow(
      /expected one of the adapters \(none\), got "first"/,
    )
  })

  test('a step refuses to run while another adapter is active than the one it was compiled with', async () => {
    const { model } = await pair()
    const program = await compile(
      ({ x }) => ({ y: model.forward(x) }),
      { x: types.x },
      { device: 'reference' },
    )
    model.setAdapter('second')
    await expect(program.run({ x: batch.x })).rejects.toThrow(
      /compiled with adapter "first", and the model is now with adapter "second".*setAdapter\('first'\)/,
    )
    model.setAdapter('first')
    await program.run({ x: batch.x })
    program.destroy()
  })

  test('modules that an adapter trains are frozen when another is active, and when it is gone', () => {
    const model = getPeftModel(mlp(), { targetModules: ['0'], modulesToSave: ['4'] }, 'first')
    const trained = () =>
      [...model.namedParameters()].flatMap(([key, { requiresGrad }]) =>
        requiresGrad && !key.includes('lora') ? [key] : [],
      )
    model.addAdapter('second', targets(['0']))
    expect(trained()).toEqual(['base_model.4.weight', 'base_model.4.bias'])
    model.setAdapter('second')
    expect(trained()).toEqual([])
    model.setAdapter('first')
    model.deleteAdapter('first')
    expect(trained()).toEqual([])
    expect(model.alsoTrained('first')).toEqual([])
  })

  test('disableAdapter refuses a function that continues later', async () => {
    const { model } = await pair()
    expect(() => model.disableAdapter(async () => outputOf(model))).toThrow(
      /disableAdapter: fn must end before it returns, got a promise/,
    )
  })

  test('refuse a name twice, and biases', async () => {
    const { model } = await pair()
    expect(() => model.addAdapter('first', targets(['0']))).toThrow(
      /has an adapter "first" already/,
    )
    expect(() => model.addAdapter('third', { targetModules: ['0'], bias: 'all' })).toThrow(
      /one adapter alone/,
    )
  })
})

test('unload leaves the layers as they were, and merged weights compute what the adapter did', async () => {
  manualSeed(6)
  const base = mlp()
  const [before, keys] = [await outputOf(base), Object.keys(await base.stateDict())]
  const model = getPeftModel(base, { targetModules: ['0', '4'], r: 2, useRslora: true })
  for (const [, factor] of factorsOf(model)) factor.assign(new Float32Array(factor.count).fill(0.1))
  const adapted = await outputOf(model)
  const merged = mlp()
  merged.loadStateDict(await model.mergedState())
  expect(await outputOf(model)).toEqual(adapted)
  const got = await outputOf(merged)
  for (const [i, value] of adapted.entries()) expect(got[i]).toBeCloseTo(value, 5)
  expect(model.unload()).toBe(base)
  expect(Object.keys(await base.stateDict())).toEqual(keys)
  expect(await outputOf(base)).toEqual(before)
})

describe('what is frozen', () => {
  const step = (model: PeftModel, optimizer: AdamW) => (given: Record<string, Tensor>) => {
    const loss = crossEntropy(model.forward(given.x), given.y)
    optimizer.zeroGrad()
    loss.backward()
    optimizer.step()
    return { loss }
  }

  test('has no product for its gradient, no place in a bucket, and no state', async () => {
    const model = getPeftModel(mlp(), { targetModules: ['2'], r: 2 })
    const optimizer = new AdamW(model.parameters())
    const { nodes } = prepare(planningTarget, step(model, optimizer), types)
    // Forward: 3 layers, A, B. Backward: through the last layer, B twice, and A once: nothing below it is trained.
    expect(nodes.filter(({ op }) => op === (matmul as Op))).toHaveLength(3 + 2 + 1 + 2 + 1)
    const held = optimizer.buckets.flatMap(({ parameters }) => parameters)
    expect(new Set(held)).toEqual(new Set(factorsOf(model).map(([, factor]) => factor)))
  })

  test('is unchanged by a step on the device cpu, whose program has fewer dispatches than one that trains all', async () => {
    const runtime = await testRuntime()
    const model = getPeftModel(mlp(), { targetModules: ['2'], r: 2 })
    const frozen = model.parameters().filter(({ requiresGrad }) => !requiresGrad)
    const before = await Promise.all(frozen.map((parameter) => parameter.read()))
    const counts: number[] = []
    for (const isFrozen of [true, false]) {
      for (const parameter of frozen) parameter.requiresGrad = !isFrozen
      const optimizer = new AdamW(model.parameters())
      const program = await compile(step(model, optimizer), types, { runtime })
      if (isFrozen) {
        await program.run(batch)
        expect(Object.keys((await optimizer.stateDict()).state)).toEqual(['4', '5'])
        expect(await Promise.all(frozen.map((parameter) => parameter.read()))).toEqual(before)
      }
      counts.push(program.dispatchCount)
      program.destroy()
    }
    // Three products for weights, one for the input of the middle layer, three sums for biases at least.
    expect(counts[1] - counts[0]).toBeGreaterThanOrEqual(7)
  })

  test('are all biases but those that the config names, and all modules but those to save', () => {
    const trained = (config: Omit<LoraConfig, 'targetModules'>) =>
      [...getPeftModel(mlp(), { targetModules: ['2'], ...config }).namedParameters()].flatMap(
        ([name, { requiresGrad }]) => (requiresGrad && !name.includes('lora') ? [name] : []),
      )
    expect(trained({})).toEqual([])
    expect(trained({ bias: 'lora_only' })).toEqual(['base_model.2.bias'])
    expect(trained({ bias: 'all' })).toEqual([0, 2, 4].map((i) => `base_model.${i}.bias`))
    expect(trained({ modulesToSave: ['4'] })).toEqual(
      ['weight', 'bias'].map((n) => `base_model.4.${n}`),
    )
  })
})
