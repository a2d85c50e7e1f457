import { afterAll, beforeAll, expect, test } from 'vitest'
import { destroyProcessGroup, initProcessGroup } from '../../src/entries/distributed.ts'
import { Trace, withTrace } from '../../src/graph/trace/trace.ts'
import { exported } from '../support/api-arguments.ts'
import { attemptsOf, complaint, complaintOf, isPromise } from '../support/api-attempts.ts'
import {
  leftOutMethods,
  type Method,
  methodsWithArguments,
  publicMethods,
} from '../support/api-methods.ts'
import { arange, cast, Linear, Module, ones, SGD, type Tensor } from '../support/library.ts'
import { misnamed } from '../support/parameter-names.ts'

// As api-arguments.spec.ts, for the methods of the exported classes.

beforeAll(() => initProcessGroup({ rank: 0, worldSize: 1, links: new Map() }))
afterAll(() => destroyProcessGroup())

const isPlain = (value: unknown): boolean =>
  ['number', 'string', 'boolean'].includes(typeof value) && !Number.isNaN(value)

/** What an accepted call made of the object's own plain values. */
function nonsenseIn(what: string, before: object, object: object): string | undefined {
  const now = object as Record<string, unknown>
  const changed = Object.entries(before).find(
    ([name, value]) => isPlain(value) && (typeof now[name] !== typeof value || !isPlain(now[name])),
  )
  return changed && `${what}: is accepted, and ${changed[0]} is ${String(now[changed[0]])}`
}

async function complaintsOf(method: Method): Promise<(string | undefined)[]> {
  const { name, key, make, args, taken, isTraced } = method
  const complaints: (string | undefined)[] = []
  const waiting: Promise<string | undefined>[] = []
  const attempts = [{ what: `${name}()`, change: () => [] }, ...attemptsOf(name, taken)]
  let object = make() as Record<string, (...given: unknown[]) => unknown>
  for (const { what, change } of attempts) {
    let given: unknown[] = []
    const before = { ...object }
    const run = () => {
      given = change(args())
      return object[key](...given)
    }
    try {
      const result = isTraced ? withTrace(new Trace(), run) : run()
      if (isPromise(result)) waiting.push(complaintOf(what, result))
      // What is no number is one of the answers for what is no number.
      if (!given.some(Number.isNaN)) complaints.push(nonsenseIn(what, before, object))
      object = make() as typeof object
    } catch (error) {
      const isOfTensor = name.startsWith('Tensor.')
      complaints.push(complaint(what, error) ?? (isOfTensor ? misnamed(name, error) : undefined))
    }
  }
  return [...complaints, ...(await Promise.all(waiting))].filter(Boolean)
}

const methods = publicMethods()

test('the tables of methods name only methods', () => {
  const known = [...exported.map(([name]) => name), ...publicMethods({}).map(({ name }) => name)]
  const names = [...Object.keys(leftOutMethods), ...methodsWithArguments]
  expect(names.filter((name) => !known.includes(name))).toEqual([])
})

test.each(methods)('$name answers wrong arguments with an error of the library', async (method) => {
  expect(await complaintsOf(method)).toEqual([])
})

/** Methods that count their arguments, and those in the classes of users, and what passes them on. */
const counted =
  /^(Tensor|StoredTensor|Parameter|ModuleBuffer|Module|ModuleSequence|Optimizer|LRScheduler|GradScaler|Schedule)\./

const passing = [
  'Module.forward',
  'DistributedDataParallel.forward',
  'Tensor.item',
  'StoredTensor.item',
]

test.each(
  methods
    .filter(({ name, key }) => counted.test(name) || key === 'forward')
    .filter(({ name }) => !passing.includes(name)),
)(
  '$name refuses an argument more than it takes, which JavaScript drops',
  async ({ name, key, make, max, isTraced }) => {
    const object = make() as Record<string, (...given: unknown[]) => unknown>
    const errorAt = async (count: number) => {
      const given = [...new Array<undefined>(count - 1), 'more']
      const run = () => object[key](...given)
      try {
        await (isTraced ? withTrace(new Trace(), run) : run())
        return ''
      } catch (error) {
        return String(error)
      }
    }
    const surplus = /argument \d+ must be omitted/
    if (!Number.isFinite(max)) return expect(await errorAt(9)).not.toMatch(surplus)
    const kind = name.startsWith('Tensor.') ? 'Tensor' : object.constructor.name
    expect(await errorAt(max + 1)).toContain(`${kind}.${key}: argument ${max + 1} must be omitted`)
    if (max > 0) expect(await errorAt(max)).not.toMatch(surplus)
  },
)

/** Reads a field, or calls a method without arguments. */
const use = (object: object, name: string): unknown => {
  const value: unknown = Reflect.get(object, name)
  return typeof value === 'function' ? value.call(object) : value
}

test.each(
  methods.filter(({ name }) => counted.test(name) && !/^(StoredTensor|Schedule)\./.test(name)),
)('$name in the spelling of PyTorch is answered with its name', ({ key, make }) => {
  const other = key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
  if (other === key) return
  expect(() => use(make(), other)).toThrow(`${other} is a name of PyTorch. Write ${key}.`)
})

const tensor = () => withTrace(new Trace(), () => ones([2, 2]))
const linear = () => new Linear(2, 2)
const sgd = () => new SGD(linear().parameters(), { lr: 0.1 })

test.each<[string, () => object, string, string]>([
  ['size of a tensor', tensor, 'size', 'Tensor: size is a name of PyTorch. Write x.shape'],
  ['numpy of a tensor', tensor, 'numpy', 'read (await step.run(batch)).x'],
  ['requires_grad of a parameter', () => linear().weight, 'requires_grad', 'Write requiresGrad.'],
  ['cuda of a model', linear, 'cuda', "Write await model.to('webgpu')."],
  ['zero_grad of a model', linear, 'zero_grad', 'Write optimizer.zeroGrad().'],
  ['add_ of a tensor', tensor, 'add_', 'Tensor: add_ is a name of PyTorch. Write x = x.add(y)'],
  ['T of a tensor', tensor, 'T', 'Tensor: T is a name of PyTorch. Write x.transpose(0, 1).'],
  ['mT of a tensor', tensor, 'mT', 'Write x.transpose(-2, -1).'],
  ['cpu of a tensor', tensor, 'cpu', 'read (await step.run(batch)).x'],
  ['relu_ of a tensor', tensor, 'relu_', 'Write x = x.relu().'],
  ['masked_fill_ of a tensor', tensor, 'masked_fill_', 'Write x = where(mask, value, x).'],
  ['bool of a tensor', tensor, 'bool', 'Write x.ne(0), which'],
  ['any of a tensor', tensor, 'any', 'Write x.ne(0).amax().'],
  ['all of a tensor', tensor, 'all', 'Write x.ne(0).amin().'],
  ['isnan of a tensor', tensor, 'isnan', 'Write x.ne(x).'],
  ['prod of a tensor', tensor, 'prod', 'there is no product'],
  ['round of a tensor', tensor, 'round', 'Write x.add(0.5).floor()'],
  ['view_as of a tensor', tensor, 'view_as', 'Write x.reshape(y.shape).'],
  ['expand_as of a tensor', tensor, 'expand_as', 'Write x.expand(y.shape).'],
  ['repeat_interleave', tensor, 'repeat_interleave', 'Write x.indexSelect(dim, '],
  ['state_dict of a model', linear, 'state_dict', 'Linear: state_dict is a name of PyTorch.'],
  ['float of a model', linear, 'float', 'Write nothing: parameters are f32.'],
  ['double of a model', linear, 'double', 'Write nothing: there are no doubles.'],
  ['get_parameter', linear, 'get_parameter', 'new Map(model.namedParameters()).get(name)'],
  ['get_submodule', linear, 'get_submodule', 'new Map(model.namedModules()).get(name)'],
  ['zero_grad of SGD', sgd, 'zero_grad', 'SGD: zero_grad is a name of PyTorch. Write zeroGrad.'],
  ['param_groups', sgd, 'param_groups', 'Write optimizer.paramGroups.'],
])('%s is a name of PyTorch', (_, make, name, text) => {
  expect(() => use(make(), name)).toThrow(text)
})

test('what PyTorch writes instead is what the errors say', () => {
  withTrace(new Trace(), () => {
    const x = ones([2, 3])
    const index = cast(
      arange(3 * 4)
        .div(4)
        .floor(),
      'i32',
    )
    expect(x.indexSelect(1, index).shape).toEqual([2, 12])
    expect(x.select(0, 0).expand(x.shape).shape).toEqual(x.shape)
  })
})

test('a loop over an array may call a bound method, whose place and array are left out', () => {
  const layer = linear()
  withTrace(new Trace(), () => {
    const xs = [ones([2, 2]), ones([2, 2])]
    expect(xs.map(layer.forward.bind(layer))).toHaveLength(2)
    expect(xs.map(xs[0].add.bind(xs[0]))).toHaveLength(2)
    const others: unknown[][] = [[0], [0, [xs[1]]], [0, xs, 1], ['0', xs]]
    for (const given of others)
      expect(() =>
        (layer.forward.bind(layer) as (...args: unknown[]) => Tensor)(xs[0], ...given),
      ).toThrow('Linear.forward: argument 2 must be omitted')
  })
})

test('methods of the names of PyTorch may be set, asked for, and used as no number', () => {
  const optimizer = sgd() as SGD & { zero_grad: () => void }
  optimizer.zero_grad = optimizer.zeroGrad
  expect(() => optimizer.zero_grad()).not.toThrow(/PyTorch/)
  const x = tensor() as Tensor & { size: number }
  expect(typeof x.size).toBe('function')
  expect(() => x.size > 1).toThrow('Tensor: size is a name of PyTorch.')
})

test('a parameter whose requires_grad is set says requiresGrad, and a module may have such names', () => {
  expect(() => Object.assign(linear().weight, { requires_grad: false })).toThrow('requiresGrad')
  class Half extends Module {
    readonly half: number
    constructor() {
      super()
      this.half = 2
    }
    forward = (x: Tensor) => x
  }
  expect(new Half().half).toBe(2)
})
