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
import { Linear, Module, ones, SGD, type Tensor } from '../support/library.ts'
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
    expect(await errorAt(max + 1)).toContain(`${name}: argument ${max + 1} must be omitted`)
    if (max > 0) expect(await errorAt(max)).not.toMatch(surplus)
  },
)

test.each(
  methods.filter(({ name }) => counted.test(name) && !/^(StoredTensor|Schedule)\./.test(name)),
)('$name in the spelling of PyTorch is answered with its name', ({ key, make }) => {
  const other = key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
  if (other === key) return
  expect(() => Reflect.get(make(), other)).toThrow(`${other} is a name of PyTorch. Write ${key}.`)
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
  ['param_groups', sgd, 'param_groups', 'Write optimizer.paramGroups.'],
])('%s is a name of PyTorch', (_, make, name, text) => {
  expect(() => Reflect.get(make(), name)).toThrow(text)
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
