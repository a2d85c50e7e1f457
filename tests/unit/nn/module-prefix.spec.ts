import { expect, test } from 'vitest'
import { loadModel, writeStateDict } from '../../../src/ddp/checkpoint/model-file.ts'
import { DistributedDataParallel } from '../../../src/ddp/data-parallel/data-parallel.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { BatchNorm1d } from '../../../src/nn/batch-norm.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { Module, Sequential } from '../../../src/nn/module.ts'
import { addModulePrefix, stripModulePrefix } from '../../../src/nn/module-prefix.ts'
import { ringOf } from '../../support/process-ring.ts'

const numbers = (...values: number[]) => ({
  shape: [values.length],
  data: Float32Array.from(values),
})

const bare = () => new Sequential(new Linear(2, 3), new BatchNorm1d(3))
const wrapped = async () => {
  const [processGroup] = await ringOf(1)
  return new DistributedDataParallel(bare(), { processGroup })
}

/** A model whose own properties begin like the prefix, one of them with exactly it. */
class Awkward extends Module {
  readonly module = new Linear(1, 1)
  readonly modules0 = new Linear(1, 1)
  readonly head = new Linear(1, 1)
  forward(x: Tensor): Tensor {
    return x
  }
}

test('what is added is what a wrapped model has, and stripping it gives the bare one again', async () => {
  const state = await bare().stateDict()
  const keys = Object.keys(await (await wrapped()).stateDict())
  expect(Object.keys(addModulePrefix(state))).toEqual(keys)
  expect(stripModulePrefix(addModulePrefix(state))).toEqual(state)
  const awkward = await new Awkward().stateDict()
  expect(Object.keys(awkward)).toContain('module.weight')
  expect(stripModulePrefix(addModulePrefix(awkward))).toEqual(awkward)
})

test('a key without the prefix is left alone, where k[7:] would cut it', () => {
  const state = {
    'module.0.weight': 1,
    'modules.0.weight': 2,
    'head.weight': 3,
    module: 4,
    'module.': 5,
    'module.module.x': 6,
  }
  expect(stripModulePrefix(state)).toEqual({
    '0.weight': 1,
    'modules.0.weight': 2,
    'head.weight': 3,
    module: 4,
    'module.': 5,
    'module.x': 6,
  })
})

test('two keys that would become one are refused', () => {
  expect(() => stripModulePrefix({ 'module.0.bias': 1, '0.bias': 2 })).toThrow(
    'two keys become "0.bias"',
  )
})

test('a bare state loads into a wrapped model, and the other way round', async () => {
  const state = await bare().stateDict()
  const ddp = await wrapped()
  const exact = { prefix: 'exact' } as const
  expect(() => ddp.loadStateDict(state, exact)).toThrow(/missing \[module\.0\.weight/)
  expect(ddp.loadStateDict(state)).toEqual({
    missingKeys: [],
    unexpectedKeys: [],
  })
  expect(await ddp.module.stateDict()).toEqual(state)
  expect(await ddp.stateDict()).toEqual(addModulePrefix(state))

  const other = await (await wrapped()).stateDict()
  const model = bare()
  expect(() => model.loadStateDict(other, exact)).toThrow(/unknown \[module\.0\.weight/)
  model.loadStateDict(other)
  expect(addModulePrefix(await model.stateDict())).toEqual(other)
  // Keys that fit are taken as they are.
  model.loadStateDict(state, { prefix: 'auto' })
  expect(await model.stateDict()).toEqual(state)
})

const renamed = <T>(state: Record<string, T>, name: (key: string) => string) =>
  Object.fromEntries(Object.entries(state).map(([key, value]) => [name(key), value]))

test.each([
  ['module.', (key: string) => `module.${key}`],
  ['module.module.', (key: string) => `module.module.${key}`],
  ['_orig_mod.', (key: string) => `_orig_mod.${key}`],
  ['module._orig_mod.', (key: string) => `module._orig_mod.${key}`],
  ["Lightning's model.", (key: string) => `model.${key}`],
  ["Lightning's model._orig_mod.", (key: string) => `model._orig_mod.${key}`],
  ['a compiled layer', (key: string) => key.replace('.', '._orig_mod.')],
])('%s in keys is what a wrapper put there when a model has none', async (_, name) => {
  const saved = { ...(await bare().stateDict()), '1.bias': numbers(5, 6, 7) }
  const model = bare()
  model.loadStateDict(renamed(saved, name))
  expect((await model.stateDict())['1.bias']).toEqual(numbers(5, 6, 7))
  model.loadStateDict(renamed(renamed(saved, name), (key) => `module.${key}`))
  const file = writeStateDict(renamed(await model.stateDict(), name))
  expect(await loadModel(bare(), file)).toEqual({ missingKeys: [], unexpectedKeys: [] })
})

test('a state without a key of the model says where its keys are when some are there', async () => {
  const own = await bare().stateDict()
  const refusal = (state: object) => {
    try {
      bare().loadStateDict(state as never)
    } catch (thrown) {
      return (thrown as Error).message.replace(/.*?\]\. /, '')
    }
  }
  const more = { 'decoder.weight': numbers(1) }
  const below = 'Its tensors lie below model_state_dict: pass that part of it.'
  expect(refusal({ epoch: 3, none: null, model_state_dict: own })).toBe(below)
  expect(refusal({ ...renamed(own, (key) => `encoder.${key}`), ...more })).toBe(
    'There this model\'s keys begin with "encoder.": pass those, without it.',
  )
  expect(refusal(more)).toBe('Load a file saved for this model.')
  // Layers of other shapes have the same names.
  const wide = { '0.weight': numbers(1), '0.bias': numbers(1), '1.weight': numbers(1) }
  const first = renamed({ ...own, ...wide }, (key) => `teacher.${key}`)
  expect(refusal({ ...first, ...renamed(own, (key) => `student.${key}`) })).toMatch(/"student\."/)
  expect(refusal(first)).toBe('Load a file saved for this model.')
  expect(refusal({ ...own, ...more })).toMatch('or pass strict: false.')
})

test('the second key of one parameter is unknown when the two differ in wrappers alone', async () => {
  const state = { ...(await bare().stateDict()), 'module.1.bias': numbers(5, 6, 7) }
  expect(() => bare().loadStateDict(state)).toThrow('unknown [module.1.bias]')
})

test('a model that has a property called module keeps its keys', async () => {
  const saved = await new Awkward().stateDict()
  const model = new Awkward()
  model.loadStateDict(saved, { prefix: 'auto' })
  expect(await model.stateDict()).toEqual(saved)
})

test('a key that fits neither way is reported as given, and a wrong choice is refused', async () => {
  const model = bare()
  const state = {
    ...(await model.stateDict()),
    'modules.9.x': { shape: [1], data: new Float32Array(1) },
  }
  expect(() => model.loadStateDict(state, { prefix: 'auto' })).toThrow('unknown [modules.9.x]')
  expect(model.loadStateDict(state, { prefix: 'auto', strict: false }).unexpectedKeys).toEqual([
    'modules.9.x',
  ])
  expect(() => model.loadStateDict(state, { prefix: 'strip' as 'auto' })).toThrow(
    "loadStateDict: prefix must be one of 'exact', 'auto'",
  )
})
