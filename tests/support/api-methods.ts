import { Trace, withTrace } from '../../src/graph/trace/trace.ts'
import { systemEnv } from '../../src/util/env.ts'
import { ownOf } from '../../src/util/own-of.ts'
import {
  type Callable,
  call,
  called,
  deviceMesh,
  exported,
  isClass,
  otherArguments,
} from './api-arguments.ts'
import { hiddenMethods } from './class-members.ts'
import * as api from './library.ts'
import { argumentCount, argumentsOf } from './parameter-names.ts'

/** What the spec of methods calls: every public method of the exported classes, on objects made with right arguments. */

/** A method, named after the class that defines it, and what makes an object that has it. */
export interface Method {
  readonly name: string
  readonly key: string
  readonly make: () => object
  readonly taken: number
  /** How many arguments it takes, Infinity for any number. */
  readonly max: number
  readonly args: () => unknown[]
  /** Whether it works only in a function that is traced. */
  readonly isTraced: boolean
}

const ofGraph = 'takes parts of the graph, which only modules of the library have'

/** Classes and methods that are not called, and why. */
export const leftOutMethods: Readonly<Record<string, string>> = {
  'Optimizer.bucketsOfStep': ofGraph,
  'Optimizer.fillUnused': ofGraph,
  'Parameter.giveWayTo': 'fullyShard calls it',
  'Parameter.place': ofGraph,
  'StoredTensor.moveTo': ofGraph,
  'StoredTensor.moveToDevice': 'Module.to calls it, with a device that it has checked',
  'StoredTensor.partOf': 'loadStateDict calls it, with contents that it has checked',
  'StoredTensor.place': ofGraph,
  'StoredTensor.requireOn': ofGraph,
  'StoredTensor.stateOf': 'stateDict calls it, with contents that it has read',
}

/** Objects that are smaller, or wait less, than with the arguments of the other spec. */
const makers: Readonly<Record<string, () => object>> = {
  CharRnn: () => new api.CharRnn(4, { embeddingSize: 2, hiddenSize: 2 }),
  ResNet: () => api.resnet18({ numClasses: 2, smallInputs: true, width: 1 }),
  HashStore: () => impatient(new api.HashStore()),
  CollectiveGroup: group,
  ProcessGroup: group,
  DeviceMesh: deviceMesh,
  ReplicaCheck: () => replicaCheck,
  PrefixStore: () => impatient(new api.PrefixStore('prefix', new api.HashStore())),
}

function group(): api.ProcessGroup {
  return new api.ProcessGroup({ rank: 0, size: 1, epoch: 0, links: new Map(), env: systemEnv })
}

const replicaCheck = await api.ReplicaCheck.create(new api.ReferenceRuntime(), [])

function impatient<S extends api.Store>(store: S): S {
  store.timeoutMs = 20
  return store
}

const floats = () => Float32Array.of(1, 2)

/** Arguments with which methods work, of those that look at the first ones before the others. */
const right: Readonly<Record<string, () => unknown[]>> = {
  'CollectiveGroup.allReduce': () => [floats(), {}],
  'CollectiveGroup.allGather': () => [floats(), {}],
  'CollectiveGroup.allGatherConcat': () => [floats(), {}],
  'CollectiveGroup.reduceScatter': () => [floats(), {}],
  'CollectiveGroup.allGatherU32': () => [Uint32Array.of(1), {}],
  'CollectiveGroup.allGatherBytes': () => [Uint8Array.of(1), {}],
  'CollectiveGroup.broadcast': () => [floats(), 0, {}],
  'CollectiveGroup.reduce': () => [floats(), 0, {}],
  'CollectiveGroup.gather': () => [floats(), floats(), 0],
  'CollectiveGroup.scatter': () => [floats(), floats(), 0],
  'CollectiveGroup.send': () => [floats(), 0, {}],
  'CollectiveGroup.recv': () => [floats(), 0, {}],
  'ReplicaCheck.compare': () => [group(), 1],
  'Schedule.simulate': () => [{ forwardMs: () => 1, backwardMs: () => 1, transferMs: 0 }, 1],
  'Schedule.step': () => [api.ones([1, 2]), api.ones([1, 2])],
  'Schedule.stepOf': () => [1, () => ({ forward: () => api.ones([1]), loss: api.ones })],
  'Schedule.forward': () => [api.ones([1, 2])],
  'AverageMeter.update': () => [1, 1],
  'HashStore.add': () => ['key', 1],
  'HashStore.compareSet': () => ['key', 'a', 'b'],
  'HashStore.set': () => ['key', 'a'],
  'Module.loadStateDict': () => [{}, {}],
  'Module.to': () => ['cpu', {}],
  'MultiheadAttention.forward': () => [api.ones([3, 2, 4]), {}],
  'ModuleDict.set': () => ['name', new api.Linear(2, 2)],
  'ModuleSequence.insert': () => [0, new api.Linear(2, 2)],
  'Tensor.clamp': () => [0, 1],
  'Tensor.mean': () => [0, true],
  'Tensor.narrow': () => [0, 0, 1],
  'Tensor.select': () => [0, 0],
  'Tensor.slice': () => [0, 0, 1],
  'Tensor.sum': () => [0, true],
  'Tensor.topk': () => [1, 1],
  'Tensor.transpose': () => [0, 1],
}

/** Methods that work only in a function that is traced. */
const isTraced = (owner: string, key: string): boolean =>
  owner === 'Tensor' ||
  /^(forward|withState|withIndices|scale|unscale|swap|stepOf)$/.test(key) ||
  /^(GradScaler|ExponentialMovingAverage|Optimizer|Schedule)\.(step|update)$/.test(
    `${owner}.${key}`,
  )

export const prototypesOf = (value: Callable): object[] => {
  const chain: object[] = []
  for (
    let one = (value as unknown as { prototype: object }).prototype;
    one && one !== Object.prototype;
    one = Object.getPrototypeOf(one)
  )
    chain.push(one)
  return chain
}

/** What makes an object of an exported class. */
export const makerOf = (name: string, value: Callable): (() => object) =>
  makers[name] ?? (() => call(value, otherArguments(name)) as object)

/** How many arguments methods take that are not in the class, of those that are no function too. */
const addedMax = {
  'Tensor.view': Number.POSITIVE_INFINITY,
  'Tensor.registerHook': 1,
  'Tensor.where': 2,
}

export const methodsWithArguments: readonly string[] = Object.keys(right)

const calls = new Set(called.map(([name]) => name))

/** Whether objects of an exported class are made here: by a call, or as the library makes those that it hands out. */
export const isMade = (name: string): boolean => calls.has(name) || Object.hasOwn(makers, name)

/** Public methods of the exported classes; what several inherit, once. */
export function publicMethods(
  without: Readonly<Record<string, string>> = leftOutMethods,
): Method[] {
  const hidden = hiddenMethods()
  const seen = new Set<unknown>()
  const methods: Method[] = []
  for (const [name, value] of exported) {
    if (!isMade(name) || !isClass(value) || Object.hasOwn(leftOutMethods, name)) continue
    const make = makerOf(name, value)
    const chain = prototypesOf(value)
    for (const prototype of chain) {
      for (const [key, { value: method }] of Object.entries(
        Object.getOwnPropertyDescriptors(prototype),
      )) {
        if (typeof method !== 'function' || key === 'constructor' || seen.has(method)) continue
        seen.add(method)
        if (chain.some((one) => hidden.has(`${one.constructor.name}.${key}`))) continue
        const owner = prototype.constructor.name
        const full = `${owner}.${key}`
        if (Object.hasOwn(without, full)) continue
        const args = right[full] ?? (() => [])
        const taken = Math.max(method.length, withTrace(new Trace(), args).length)
        const max =
          argumentsOf(prototype.constructor as Callable, key) ??
          ownOf(addedMax, full) ??
          (owner === 'Tensor' ? argumentCount(Reflect.get(api, key)) - 1 : method.length)
        methods.push({ name: full, key, make, args, taken, max, isTraced: isTraced(owner, key) })
      }
    }
  }
  return methods
}
