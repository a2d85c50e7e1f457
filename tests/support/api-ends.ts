import { createProcessGroup, destroyProcessGroup } from '../../src/entries/distributed.ts'
import { exported, isClass } from './api-arguments.ts'
import { leftOutMethods, prototypesOf } from './api-methods.ts'
import { hiddenMethods } from './class-members.ts'
import * as api from './library.ts'

/** What the spec of ends calls: every public method of an object that has ended, by each method that ends it. */

/** Objects of a class that has methods which end them. */
interface Ending {
  readonly make: () => object | Promise<object>
  /** What ends the object, by name. */
  readonly ends: Readonly<Record<string, (object: never) => unknown>>
  /** Arguments with which methods work until then. */
  readonly args?: Readonly<Record<string, () => unknown[]>>
  /** Methods that work, or do nothing, after the end, as their documentation says; all others are refused. */
  readonly harmless: string
}

/** Names of methods that end the object that has them. */
const ending = /^(destroy|close|end|leave|abort|stop|terminate|shutdown|dispose|release)$/

const onGpu = 'has memory of a device, which Node has none of'

/** Classes whose end is tested elsewhere, and why. */
export const leftOutEnds: Readonly<Record<string, string>> = {
  LinkBase: 'tests/support/link-conformance.ts ends every kind of link',
  OpfsStore: 'needs private files, which Node has none of',
  ProcessContext: 'starts workers',
  ReplicaCheck: onGpu,
  StagedTensor: onGpu,
  StagedUploads: onGpu,
  WebSocketStore: 'tests/unit/store/web-socket-store.spec.ts closes it',
}

const floats = () => [Float32Array.of(1, 2)]
const group = () => createProcessGroup({ rank: 0, worldSize: 1, links: new Map() })
const inputs = () => ({ x: Float32Array.of(1, 2) })
const destroy = (object: { destroy(): void }) => object.destroy()
const close = (object: { close(): void }) => object.close()

const ofGroups = {
  args: {
    ownRange: () => [2],
    reduceScatter: floats,
    allGather: floats,
    allReduce: floats,
    allGatherConcat: floats,
    broadcast: () => [...floats(), 0],
    reduce: () => [...floats(), 0],
    gather: () => [...floats(), ...floats(), 0],
    scatter: () => [...floats(), ...floats(), 0],
    allToAll: () => [...floats(), ...floats()],
    send: () => [...floats(), 0],
    recv: () => [...floats(), 0],
    allGatherU32: () => [Uint32Array.of(1)],
    allGatherBytes: () => [Uint8Array.of(1)],
    abort: () => ['over'],
    newGroup: () => [[0]],
    takeLinkPeaks: () => [0],
  },
} as const

const ofStores = {
  args: {
    set: () => ['key', 'a'],
    get: () => ['key'],
    add: () => ['key', 1],
    wait: () => [['key']],
    compareSet: () => ['key', 'a', 'b'],
    deleteKey: () => ['key'],
  },
} as const

const names = `registerForwardPreHook registerForwardHook registerFullBackwardHook train eval children
  modules namedModules apply requiresGrad_ namedParameters parameters namedBuffers buffers registerBuffer`

/** By the class that has the ending method. */
export const endings: Readonly<Record<string, Ending>> = {
  AccumulatedProgram: {
    make: () =>
      api.compileAccumulated(
        ({ x }) => ({ y: x.exp() }),
        { x: api.tensorType([2]) },
        { steps: 1, device: 'reference' },
      ),
    ends: { destroy },
    args: { run: () => [inputs()] },
    harmless: 'destroy',
  },
  CollectiveGroup: {
    make: async () => (await group()).newGroup([0]),
    ends: { destroyProcessGroup },
    ...ofGroups,
    harmless: 'ownRange abort',
  },
  ProcessGroup: {
    make: group,
    ends: {
      destroy,
      leave: (one: api.ProcessGroup) => one.leave(),
      abort: (one: api.ProcessGroup) => one.abort('over'),
    },
    ...ofGroups,
    harmless: 'ownRange abort stats takeLinkPeaks leave destroy takeSequence',
  },
  DataLoader: {
    make: () =>
      new api.DataLoader(
        new api.TensorDataset({ x: api.hostTensor([2, 2], Float32Array.of(1, 2, 3, 4)) }),
      ),
    ends: { close },
    args: { setEpoch: () => [1] },
    harmless: 'setEpoch stateDict close',
  },
  HashStore: {
    make: () => new api.HashStore(),
    ends: { close },
    ...ofStores,
    harmless: 'close share',
  },
  PrefixStore: {
    make: () => {
      const store = new api.HashStore()
      return Object.assign(new api.PrefixStore('prefix', store), { behind: store })
    },
    ends: { close: ({ behind }: { behind: api.HashStore }) => behind.close() },
    ...ofStores,
    harmless: 'close',
  },
  Module: {
    make: () => new api.Linear(2, 2),
    ends: { destroy },
    args: {
      forward: () => [api.ones([2, 2])],
      loadStateDict: () => [
        { weight: api.hostTensor([2, 2], new Float32Array(4)) },
        { strict: false },
      ],
      registerForwardPreHook: () => [() => undefined],
      registerForwardHook: () => [() => undefined],
      registerFullBackwardHook: () => [() => undefined],
      registerBuffer: () => ['more', new api.ModuleBuffer([1], Float32Array.of(1))],
      apply: () => [() => undefined],
      to: () => ['reference'],
    },
    harmless: `${names} forward destroy`,
  },
  StoredTensor: {
    make: () => new api.Parameter([2], Float32Array.of(1, 2)),
    ends: { destroy },
    args: { assign: floats, copyTo: () => ['reference'] },
    harmless: 'requiresGrad_ retainGrad release destroy',
  },
}

const methodsIn = (prototype: object): string[] =>
  Object.entries(Object.getOwnPropertyDescriptors(prototype))
    .filter(([key, { value }]) => typeof value === 'function' && key !== 'constructor')
    .map(([key]) => key)

/** Classes of the library that declare an ending method and are not exported. */
export function endingClasses(): string[] {
  const hidden = hiddenMethods()
  const owners = exported
    .filter(([, value]) => isClass(value))
    .flatMap(([, value]) => prototypesOf(value))
    .filter((prototype) => {
      const { name } = prototype.constructor
      return methodsIn(prototype).some((key) => ending.test(key) && !hidden.has(`${name}.${key}`))
    })
  return [...new Set(owners.map((prototype) => prototype.constructor.name))]
}

/** Public methods of an object, those of `Tensor` left out, which take no stored tensor's contents. */
export function methodsOf(object: object): string[] {
  const hidden = hiddenMethods()
  const chain: object[] = []
  for (
    let one: object = Object.getPrototypeOf(object);
    one !== Object.prototype && one !== api.Tensor.prototype;
    one = Object.getPrototypeOf(one)
  )
    chain.push(one)
  const isHidden = (key: string) =>
    chain
      .map((one) => `${one.constructor.name}.${key}`)
      .some((name) => hidden.has(name) || Object.hasOwn(leftOutMethods, name))
  return [...new Set(chain.flatMap(methodsIn))].filter((key) => !isHidden(key))
}
