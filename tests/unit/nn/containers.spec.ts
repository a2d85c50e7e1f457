import { expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { checkpointSequential } from '../../../src/graph/functions/checkpoint.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { ModuleDict, ModuleList } from '../../../src/nn/containers.ts'
import { Dropout } from '../../../src/nn/dropout.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { Module, Sequential } from '../../../src/nn/module.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { tensorType } from '../../../src/util/shape.ts'

const keysOf = (module: Module) => [...module.namedParameters()].map(([key]) => key)
const linear = () => new Linear(2, 2, { bias: false })

class Stack extends Module {
  readonly layers = new ModuleList([linear(), linear()])
  readonly blocks = new ModuleDict({ attn: linear(), camelCase: linear() })

  forward(x: Tensor): Tensor {
    let y = x
    for (const layer of this.layers) y = layer.forward(y)
    return this.blocks.get('camelCase').forward(this.blocks.get('attn').forward(y))
  }
}

// As torch: the same class in Python has these keys in this order.
test('keys are positions of a list, and names of a dict as they are', () => {
  expect(keysOf(new Stack())).toEqual([
    'layers.0.weight',
    'layers.1.weight',
    'blocks.attn.weight',
    'blocks.camelCase.weight',
  ])
})

test('what they hold is trained, and follows the mode', async () => {
  const model = new Stack()
  const before = await model.stateDict()
  const optimizer = new SGD(model.parameters(), { lr: 1 })
  const program = await compile(
    ({ x }) => {
      const loss = model.forward(x).square().sum()
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
  for (const key of keysOf(model)) expect(after[key].data).not.toEqual(before[key].data)
  model.eval()
  expect([...model.modules()].map(({ training }) => training)).toEqual(Array(7).fill(false))
})

test('a list: length, places from either end, iteration, and the methods of torch', () => {
  const [a, b, c, d, e] = Array.from({ length: 5 }, linear)
  const list = new ModuleList([a])
  expect(list.append(b)).toBe(list)
  expect(list.extend([d])).toBe(list)
  list.insert(2, c)
  expect([...list]).toEqual([a, b, c, d])
  expect([list.length, list.at(0), list.at(-1)]).toEqual([4, a, d])
  list.insert(-4, e)
  list.insert(5, e)
  expect([...list].map((module) => [a, b, c, d, e].indexOf(module as Linear))).toEqual([
    4, 0, 1, 2, 3, 4,
  ])
  list.set(-1, a)
  expect(list.at(5)).toBe(a)
  expect([list.pop(), list.pop(0), list.length]).toEqual([a, e, 4])
  expect(keysOf(new ModuleList())).toEqual([])
  for (const wrong of [4, -5, 0.5]) {
    expect(() => list.at(wrong)).toThrow(/index .* is out of range for 4 modules/)
    expect(() => list.set(wrong, a)).toThrow(/index .* is out of range for 4 modules/)
    expect(() => list.pop(wrong)).toThrow(/index .* is out of range for 4 modules/)
  }
  expect(() => list.insert(5, a)).toThrow(/index 5 is out of range for 4 modules/)
  expect(() => new ModuleList().pop()).toThrow(/index -1 is out of range for 0 modules/)
})

test('a dict: names in order, and the methods of torch', () => {
  const [a, b, c] = Array.from({ length: 3 }, linear)
  const dict = new ModuleDict([['a', a] as const, ['b', b] as const])
  expect([dict.size, dict.get('b'), dict.has('b'), dict.has('c')]).toEqual([2, b, true, false])
  dict.set('c', c).update({ a: c })
  expect([...dict.keys()]).toEqual(['a', 'b', 'c'])
  expect([...dict.values()]).toEqual([c, b, c])
  expect([...dict.entries()]).toEqual([
    ['a', c],
    ['b', b],
    ['c', c],
  ])
  // A module under two names is one parameter.
  expect(keysOf(dict)).toEqual(['a.weight', 'b.weight'])
  expect(dict.pop('b')).toBe(b)
  expect(() => dict.get('b')).toThrow(/one of the names a, c, got "b"/)
  expect(() => dict.pop('b')).toThrow(/got "b"/)
  for (const wrong of ['', 'a.b']) expect(() => dict.set(wrong, a)).toThrow(/without dots/)
  dict.clear()
  expect(dict.size).toBe(0)
})

test('neither can be called; a list may be checkpointed', async () => {
  const x = undefined as unknown as Tensor
  expect(() => new ModuleList().forward(x)).toThrow(/^ModuleList: .*Call its modules one by one/)
  expect(() => new ModuleDict().forward(x)).toThrow(/^ModuleDict: .*Call its modules one by one/)
  const list = new ModuleList([linear(), new Dropout(0)])
  const program = await compile(
    ({ x }) => ({ y: checkpointSequential(list, 2, x) }),
    { x: tensorType([1, 2]) },
    { device: 'reference' },
  )
  expect((await program.run({ x: Float32Array.of(0, 0) })).y).toEqual(Float32Array.of(0, 0))
  program.destroy()
})

class Holding extends Module {
  readonly layers: unknown
  constructor(layers: unknown) {
    super()
    this.layers = layers
  }
  forward(x: Tensor): Tensor {
    return x
  }
}

test.each([
  ['array', [linear()], 'ModuleList'],
  ['array', [1, linear()], 'ModuleList'],
  ['object', { a: linear() }, 'ModuleDict'],
  ['object', new Map([['a', linear()]]), 'ModuleDict'],
  ['set', new Set([linear()]), 'ModuleList'],
  ['array', [[linear()]], 'ModuleList'],
  ['object', { a: [linear()] }, 'ModuleDict'],
  ['object', { a: { b: new Map([['c', new Set([linear()])]]) } }, 'ModuleDict'],
])(
  'modules in a plain %s are refused wherever they would be missing',
  async (kind, layers, use) => {
    const text = new RegExp(`^Holding: .*"layers" is a plain ${kind} of modules.*${use}`)
    const module = new Holding(layers)
    expect(() => module.parameters()).toThrow(text)
    expect(() => module.buffers()).toThrow(text)
    expect(() => module.children()).toThrow(text)
    expect(() => module.eval()).toThrow(text)
    expect(() => module.loadStateDict({})).toThrow(text)
    await expect(module.stateDict()).rejects.toThrow(text)
  },
)

test('arrays of other things, and of modules that are properties too, stay as they are', () => {
  expect(keysOf(new Holding([1, 'a', null]))).toEqual([])
  const cyclic: unknown[] = [1]
  cyclic.push(cyclic)
  expect(keysOf(new Holding(cyclic))).toEqual([])
  class Deep extends Module {
    readonly stack = new Stack()
    readonly pairs = [[this.stack.layers.at(0), this.stack.layers.at(1)]]
    forward(x: Tensor): Tensor {
      return x
    }
  }
  expect(keysOf(new Deep())[0]).toBe('stack.layers.0.weight')
  class Both extends Module {
    readonly first = linear()
    readonly all = [this.first]
    forward(x: Tensor): Tensor {
      return this.all[0].forward(x)
    }
  }
  expect(keysOf(new Both())).toEqual(['first.weight'])
})

test('a Sequential is a list too: length, places, iteration, and the methods of torch', async () => {
  const [a, b, c, d] = Array.from({ length: 4 }, linear)
  const model = new Sequential(a)
  expect(model.append(c).extend([d])).toBe(model)
  model.insert(1, b)
  expect(model.length).toBe(4)
  expect([...model]).toEqual([a, b, c, d])
  expect([model.at(0), model.at(-1)]).toEqual([a, d])
  expect(keysOf(model)).toEqual(['0', '1', '2', '3'].map((key) => `${key}.weight`))
  expect(model.pop()).toBe(d)
  model.set(2, a)
  expect([...model]).toEqual([a, b, a])
  expect(() => model.at(3)).toThrow(/Sequential: index 3 is out of range for 3 modules/)
  expect(() => model.append([a] as never)).toThrow(/Sequential: expected modules, got an array/)
  expect(() => new Sequential([a] as never)).toThrow(/Sequential: expected modules/)

  const scale = (layer: Linear, by: number) => layer.weight.assign(Float32Array.of(by, 0, 0, by))
  scale(a, 2)
  scale(b, 5)
  const program = await compile(
    ({ x }) => ({ y: model.forward(x) }),
    { x: tensorType([1, 2]) },
    { device: 'reference' },
  )
  const { y } = await program.run({ x: Float32Array.of(1, 3) })
  expect([...y]).toEqual([20, 60])
})

test('a parameter in a container of a module is refused by its place, where no property has it', () => {
  const kept = new Parameter([2], new Float32Array(2))
  const lost = () => new Parameter([3], new Float32Array(3))
  class Holding extends Linear {
    readonly scale = kept
    readonly [name: string]: unknown
  }
  const holding = (held: unknown) => Object.assign(new Holding(2, 2), { held })
  for (const [kind, held] of [
    ['array', [kept, lost()]],
    ['object', { a: { b: lost() } }],
    ['object', new Map([['a', lost()]])],
    ['set', new Set([lost()])],
  ] as const) {
    const model = new Sequential(holding(held))
    const refusal = `Holding: "held" is a plain ${kind} with a parameter [3], which would be ignored. Give it a property`
    expect(() => model.parameters()).toThrow(refusal)
    expect(() => [...model.namedParameters()]).toThrow(refusal)
    expect(() => new SGD(model.parameters())).toThrow(refusal)
  }
  const linear = new Linear(1, 1)
  const shared = Object.assign(holding({ kept: [kept], inner: linear.weight }), { linear })
  expect(shared.parameters()).toHaveLength(5)
})

test('a dict takes modules alone, and modules take flags alone', () => {
  const dict = new ModuleDict()
  expect(() => dict.set('a', 5 as never)).toThrow('ModuleDict: module must be a Module, got 5')
  expect(dict.size).toBe(0)
  const layer = new Linear(2, 2)
  expect(() => layer.requiresGrad_('no' as never)).toThrow('flag must be true or false')
  expect(() => layer.weight.requiresGrad_('no' as never)).toThrow('must be true or false')
  expect(() => layer.weight.assign([1, 2, 3, 4] as never)).toThrow(
    'data must be a Float32Array, got a plain array of 4',
  )
})

test('a module that holds itself, or one that holds it, is refused by the name under which it does', () => {
  const [alone, outer, inner] = [1, 2, 3].map(() => new Holding(undefined))
  Object.assign(alone, { me: alone })
  Object.assign(outer, { inner })
  Object.assign(inner, { outer })
  for (const [module, path] of [[alone, 'me'] as const, [outer, 'inner.outer'] as const])
    for (const use of [() => module.parameters(), () => module.eval(), () => module.apply(Boolean)])
      expect(use).toThrow(`Holding: "${path}" is one of the modules that hold it. Keep it in a`)
})

test.each([
  ['Sequential', '0', new Sequential(linear())],
  ['ModuleList', '1', new ModuleList([linear()])],
  ['ModuleDict', 'head', new ModuleDict({ body: linear() })],
])('%s is refused when a module is written to its property %s', (_, key, container) => {
  Object.assign(container, { [key]: linear() })
  expect(() => container.parameters()).toThrow(
    `the module in property "${key}" is none of those it lists, and would be ignored. Add it by set(`,
  )
})

test('a Sequential is refused at its forward when a module is written to a property', async () => {
  const model = Object.assign(new Sequential(linear()), { 0: linear() })
  const compiled = compile(({ x }) => ({ y: model.forward(x) }), { x: tensorType([1, 2]) })
  await expect(compiled).rejects.toThrow('the module in property "0" is none of those it lists')
})
