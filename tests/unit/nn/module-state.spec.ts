import { describe, expect, test } from 'vitest'
import { load, save } from '../../../src/data/saved-tree.ts'
import { packCheckpoint, unpackCheckpoint } from '../../../src/ddp/checkpoint/checkpoint-file.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { ModuleBuffer } from '../../../src/graph/trace/module-buffer.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { BatchNorm1d } from '../../../src/nn/batch-norm.ts'
import { Linear, ReLU } from '../../../src/nn/layers.ts'
import { Module, Sequential, type StateDict } from '../../../src/nn/module.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { models } from '../../support/models.ts'

/** Two layers of one weight, and a module in two places. */
class Tied extends Module {
  readonly relu = new ReLU()
  readonly first = new Linear(2, 2)
  readonly norm = new BatchNorm1d(2)
  readonly last = new Linear(2, 2, { bias: false })
  readonly again = this.norm

  constructor() {
    super()
    Object.assign(this.last, { weight: this.first.weight })
  }

  forward(x: Tensor): Tensor {
    return this.last.forward(this.norm.forward(this.relu.forward(this.first.forward(x))))
  }
}

const ones = (...shape: number[]) => ({
  shape,
  data: new Float32Array(shape.reduce((product, size) => product * size, 1)).fill(1),
})

test.each([
  ['Parameter', () => Float32Array.of(1, 2), (data: never) => new Parameter([2], data)],
  ['ModuleBuffer', () => Int32Array.of(1, 2), (data: never) => new ModuleBuffer([2], data)],
])('%s keeps what its array had when its owner changes or sends that', async (_, array, make) => {
  const [changed, sent] = [array(), array()]
  const tensors = [make(changed as never), make(sent as never)]
  changed.fill(7)
  structuredClone(sent, { transfer: [sent.buffer] })
  for (const tensor of tensors) expect([...(await tensor.read())]).toEqual([1, 2])
})

// The lists below are what torch 1.13 gives for the same classes.
describe('names', () => {
  test('modules, each once, with paths', () => {
    const model = new Sequential(new Tied(), new ReLU())
    expect([...model.namedModules()].map(([path]) => path)).toEqual([
      '',
      '0',
      '0.relu',
      '0.first',
      '0.norm',
      '0.last',
      '1',
    ])
    expect([...model.modules()]).toHaveLength(7)
    expect([...new Tied().namedModules('model')].map(([path]) => path)[1]).toBe('model.relu')
  })

  test('parameters come once; the state dict has all their keys', async () => {
    const model = new Tied()
    expect([...model.namedParameters('x.')].map(([key]) => key)).toEqual([
      'x.first.weight',
      'x.first.bias',
      'x.norm.weight',
      'x.norm.bias',
    ])
    expect([...model.namedBuffers()]).toHaveLength(3)
    const state = await model.stateDict()
    const norm = ['weight', 'bias', 'running_mean', 'running_var', 'num_batches_tracked']
    expect(Object.keys(state)).toEqual([
      'first.weight',
      'first.bias',
      ...norm.map((key) => `norm.${key}`),
      'last.weight',
      ...norm.map((key) => `again.${key}`),
    ])
    expect(state['last.weight'].data).toBe(state['first.weight'].data)
  })

  test('camelCase becomes snake_case; names in another style stay', () => {
    class Styled extends Module {
      readonly inProj = new Linear(1, 1, { bias: false })
      readonly fc2Out = new Linear(1, 1, { bias: false })
      readonly W = new Parameter([1], new Float32Array(1))
      readonly W_q = new Linear(1, 1, { bias: false })
      readonly convBN = new Linear(1, 1, { bias: false })
      readonly out_projW = new Linear(1, 1, { bias: false })
      readonly headB = new Linear(1, 1, { bias: false })
      forward(x: Tensor): Tensor {
        return x
      }
    }
    expect([...new Styled().namedParameters()].map(([key]) => key)).toEqual([
      'W',
      ...['in_proj', 'fc2_out', 'W_q', 'convBN', 'out_projW', 'head_b'].map(
        (key) => `${key}.weight`,
      ),
    ])
  })

  test('two properties with one key are refused, not lost', async () => {
    class Twins extends Module {
      readonly aB = new Linear(1, 1)
      readonly a_b = new Linear(1, 1)
      forward(x: Tensor): Tensor {
        return x
      }
    }
    const text = /Twins: two tensors or modules have the key "1\.a_b"\./
    const model = new Sequential(new ReLU(), new Twins())
    expect(() => model.parameters()).toThrow(text)
    await expect(model.stateDict()).rejects.toThrow(text)
    expect(() => model.loadStateDict({})).toThrow(text)
  })

  test('a parameter is called by its outermost key, whichever module is asked first', () => {
    const model = new Sequential(new Tied(), new ReLU())
    const [inner] = model.at(0).parameters()
    expect(inner.name).toBe('first.weight')
    model.parameters()
    expect(inner.name).toBe('0.first.weight')
    new Tied().parameters()
    model.at(0).parameters()
    expect(inner.name).toBe('0.first.weight')
  })

  test('apply goes from the inside out, to each module once', () => {
    const seen: string[] = []
    const model = new Sequential(new Tied(), new ReLU())
    expect(model.apply((module) => seen.push(module.constructor.name))).toBe(model)
    expect(seen).toEqual(['ReLU', 'Linear', 'BatchNorm1d', 'Linear', 'Tied', 'ReLU', 'Sequential'])
  })
})

test('requiresGrad_ freezes what is compiled next, and lets it learn again', async () => {
  const model = new Sequential(new Linear(2, 2), new Linear(2, 2))
  const [[, first]] = model.children()
  expect(first.requiresGrad_(false)).toBe(first)
  expect(model.parameters().map(({ requiresGrad }) => requiresGrad)).toEqual([
    false,
    false,
    true,
    true,
  ])
  const step = async () => {
    const before = await model.stateDict()
    const learning = model.parameters().filter(({ requiresGrad }) => requiresGrad)
    const optimizer = new SGD(learning, { lr: 1 })
    const program = await compile(
      ({ x }) => {
        const loss = model.forward(x).sum()
        loss.backward()
        optimizer.step()
        return { loss }
      },
      { x: tensorType([1, 2]) },
      { device: 'reference' },
    )
    await program.run({ x: Float32Array.of(1, 2) })
    program.destroy()
    const after = await model.stateDict()
    return Object.keys(after).filter((key) => `${after[key].data}` !== `${before[key].data}`)
  }
  expect(await step()).toEqual(['1.weight', '1.bias'])
  model.requiresGrad_()
  expect(await step()).toEqual(['0.weight', '0.bias', '1.weight', '1.bias'])
})

describe('loadStateDict', () => {
  test('an argument that is no object of tensors is refused, even with strict off', () => {
    const model = new Linear(1, 1)
    for (const state of [model.stateDict(), new Map(), Float32Array.of(1), []])
      expect(() => model.loadStateDict(state as never, { strict: false })).toThrow(
        /^loadStateDict: expected tensors by key, as await model.stateDict\(\) gives, got (a promise, which lacks an await|a Map|Float32Array of 1|\[\])/,
      )
  })

  test('a state may be an object of a class', () => {
    class Saved {
      readonly weight = ones(1, 1)
    }
    const model = new Linear(1, 1, { bias: false })
    expect(model.loadStateDict(new Saved() as never).missingKeys).toEqual([])
  })

  const make = () => new Sequential(new Linear(2, 1), new Linear(1, 1, { bias: false }))
  const some: StateDict = { '0.weight': ones(1, 2), '0.bias': ones(1), extra: ones(3) }

  test('refuses missing and unknown keys, and changes nothing then', async () => {
    const model = make()
    const before = await model.stateDict()
    expect(() => model.loadStateDict(some)).toThrow(
      /missing \[1\.weight\] and unknown \[extra\].*strict: false/,
    )
    expect(() => model.loadStateDict(some, { strict: true })).toThrow(/missing/)
    expect(await model.stateDict()).toEqual(before)
  })

  test('not strict: loads the keys that fit and returns the others', async () => {
    const model = make()
    const { data } = (await model.stateDict())['1.weight']
    expect(model.loadStateDict(some, { strict: false })).toEqual({
      missingKeys: ['1.weight'],
      unexpectedKeys: ['extra'],
    })
    expect(await model.stateDict()).toEqual({
      '0.weight': ones(1, 2),
      '0.bias': ones(1),
      '1.weight': { shape: [1, 1], data },
    })
    expect(model.loadStateDict(await model.stateDict())).toEqual({
      missingKeys: [],
      unexpectedKeys: [],
    })
  })

  test('another shape is an error either way, and changes nothing', async () => {
    const model = make()
    const before = await model.stateDict()
    const wrong = { '0.weight': ones(1, 2), '0.bias': ones(2) }
    expect(() => model.loadStateDict(wrong, { strict: false })).toThrow(
      /"0\.bias" must be \[1\], got \[2\]/,
    )
    expect(await model.stateDict()).toEqual(before)
  })

  test('a number that does not fit is an error, and changes nothing', async () => {
    const model = new BatchNorm1d(1)
    const before = await model.stateDict()
    const wrong = {
      weight: { shape: [1], data: Float32Array.of(7) },
      num_batches_tracked: { shape: [], data: BigInt64Array.of(2n ** 40n) },
    }
    expect(() => model.loadStateDict(wrong, { strict: false })).toThrow(
      /"num_batches_tracked": expected whole numbers of 32 bits/,
    )
    expect(await model.stateDict()).toEqual(before)
  })

  test('a shared tensor needs one of its keys; of several the last wins', async () => {
    const model = new Tied()
    const { 'last.weight': _, ...withoutAlias } = await model.stateDict()
    expect(model.loadStateDict(withoutAlias).missingKeys).toEqual([])
    const two = { shape: [2, 2], data: new Float32Array(4).fill(2) }
    model.loadStateDict({ ...withoutAlias, 'first.weight': ones(2, 2), 'last.weight': two })
    expect((await model.stateDict())['first.weight']).toEqual(two)
    const { missingKeys } = model.loadStateDict({}, { strict: false })
    expect(missingKeys.filter((key) => key.endsWith('t.weight'))).toEqual([
      'first.weight',
      'last.weight',
    ])
  })

  test('a buffer that is not persistent has no key, as in PyTorch', () => {
    class Scaled extends Module {
      readonly scale = this.registerBuffer('scale', new ModuleBuffer([1], Float32Array.of(2)), {
        persistent: false,
      })
      forward(x: Tensor): Tensor {
        return x.mul(this.scale)
      }
    }
    expect(new Scaled().loadStateDict({ scale: ones(1) }, { strict: false })).toEqual({
      missingKeys: [],
      unexpectedKeys: ['scale'],
    })
  })
})

describe('the table that a GPT shares with its output layer', () => {
  const make = () => models.gpt({ vocabSize: 5, blockSize: 4, layers: 1, heads: 1, width: 2 })

  test('has both keys in the state dict and in files', async () => {
    const model = make()
    const state = await model.stateDict()
    expect(Object.keys(state).slice(-1)).toEqual(['lm_head.weight'])
    expect(state['lm_head.weight']).toEqual(state['transformer.wte.weight'])
    const copy = make()
    copy.loadStateDict(load(save({ state })).state as StateDict)
    expect(await copy.stateDict()).toEqual(state)
  })

  test('goes through a checkpoint', async () => {
    const model = make()
    const copy = make()
    await unpackCheckpoint(await packCheckpoint({ model }), { model: copy })
    expect(await copy.stateDict()).toEqual(await model.stateDict())
    expect(copy.parameters()).toHaveLength(16)
  })
})

// As torch 1.13 loads them.
describe('batch normalizations of old files', () => {
  const floats = (...values: number[]) => ({
    shape: [values.length],
    data: Float32Array.from(values),
  })
  const old = {
    weight: floats(1, 2),
    bias: floats(0, 1),
    running_mean: floats(5, 6),
    running_var: floats(7, 8),
  }
  const counted = (shape: number[], count: number) => ({
    ...old,
    num_batches_tracked: { shape, data: Int32Array.of(count) },
  })
  const countOf = async (layer: Module) => [
    ...(await layer.stateDict())['num_batches_tracked'].data,
  ]

  test('begin at 0 when the file has no count, and keep it when the layer is not in the file', async () => {
    const layer = new BatchNorm1d(2)
    layer.loadStateDict(counted([], 9))
    layer.loadStateDict({}, { strict: false })
    expect(await countOf(layer)).toEqual([9])
    expect(layer.loadStateDict(old)).toEqual({ missingKeys: [], unexpectedKeys: [] })
    expect(await countOf(layer)).toEqual([0])
    expect((await layer.stateDict())['running_mean'].data).toEqual(old.running_mean.data)
  })

  test('take a count of shape [1], and no longer one', async () => {
    const layer = new BatchNorm1d(2)
    layer.loadStateDict(counted([1], 9))
    expect(await countOf(layer)).toEqual([9])
    const two = {
      ...old,
      num_batches_tracked: { shape: [2], data: Int32Array.of(1, 2) },
    }
    expect(() => layer.loadStateDict(two)).toThrow('"num_batches_tracked" must be []')
  })
})

test('a state whose last tensor has too few elements changes no tensor before it', async () => {
  const model = new Linear(2, 2)
  const before = await model.stateDict()
  const state = { weight: ones(2, 2), bias: { shape: [2], data: Float32Array.of(1) } }
  expect(() => model.loadStateDict(state)).toThrow(
    'loadStateDict: expected 2 elements of [2] for "bias", got Float32Array of 1',
  )
  expect(await model.stateDict()).toEqual(before)
})

test('names that no key can have are refused', async () => {
  const refused = expect.objectContaining({
    code: 'graph.misuse',
    message: expect.stringMatching(/: expected a nonempty name without dots, got "(|a\.b)"\. /),
  })
  for (const name of ['a.b', '']) {
    const one = () => new Parameter([1], Float32Array.of(1))
    for (const wrong of [one(), new Linear(1, 1)]) {
      const model = Object.assign(new ReLU(), { [name]: wrong })
      expect(() => model.parameters()).toThrow(refused)
      await expect(model.stateDict()).rejects.toEqual(refused)
    }
    const buffer = new ModuleBuffer([1], Float32Array.of(1))
    expect(() => new ReLU().registerBuffer(name, buffer)).toThrow(refused)
  }
  expect(() => new ReLU().registerBuffer('a', new Float32Array(1) as never)).toThrow(
    /^registerBuffer: buffer must be a ModuleBuffer/,
  )
})
