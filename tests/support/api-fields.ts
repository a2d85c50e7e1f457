import { type Callable, called, exported, isClass } from './api-arguments.ts'
import { isMade, makerOf, prototypesOf } from './api-methods.ts'
import { classMembers } from './class-members.ts'
import * as api from './library.ts'

/** What the spec of fields sets: every public field that may be set, of objects made with right arguments. */

/** What one field may be, and the next call that depends on it. */
interface Use {
  readonly takes: (value: unknown) => boolean
  /** Left out where setting alone refuses. */
  readonly use?: (object: never) => unknown
}

export interface Field extends Use {
  readonly name: string
  readonly key: string
  readonly make: () => object
}

const setInside = 'the library sets it'
const freeText = 'a text for errors alone'

/** Fields that are not set, and why. */
export const leftOutFields: Readonly<Record<string, string>> = {
  'ReferenceRuntime.variants': setInside,
  'ModuleBuffer.exchange': setInside,
  'Parameter.exchange': setInside,
  'Parameter.sharedBy': setInside,
  'Parameter.sharingBy': setInside,
  'Parameter.dividedAlong': setInside,
  'Parameter.replicatedBy': setInside,
  'Parameter.sameOn': setInside,
  'Parameter.meanOver': setInside,
  'StoredTensor.name': freeText,
  'StoredTensor.absent': setInside,
  'StoredTensor.heldAt': setInside,
  'StoredTensor.holder': setInside,
  'StoredTensor.isListed': setInside,
  'StoredTensor.mirror': setInside,
  'PrefixStore.timeoutMs': 'that of the store behind it',
}

const isFlag = (value: unknown): boolean => typeof value === 'boolean'
const isNumber = (value: unknown): boolean => Number.isFinite(value)

const uses: Readonly<Record<string, Use>> = {
  'CollectiveGroup.choice': { takes: () => false },
  'CollectiveGroup.deadlineMs': { takes: (value) => typeof value === 'number' && value > 0 },
  'ProcessGroup.onfailure': { takes: (value) => typeof value === 'function' },
  'ProcessGroup.onsuspect': { takes: (value) => typeof value === 'function' },
  'ExponentialMovingAverage.decay': {
    takes: (value) => isNumber(value) && (value as number) >= 0 && (value as number) <= 1,
    use: (ema: api.ExponentialMovingAverage) => stepOf(ema),
  },
  'LRScheduler.lastEpoch': {
    takes: isNumber,
    use: (scheduler: api.lrScheduler.LRScheduler) => scheduler.step(),
  },
  'Module.training': { takes: isFlag },
  'Parameter.requiresGrad': { takes: isFlag },
  'Parameter.grad': { takes: () => false },
  'Tensor.requiresGrad': { takes: () => false },
  'Tensor.grad': { takes: () => false },
  'TimedStore.timeoutMs': {
    takes: (value) => isNumber(value) && (value as number) >= 0 && (value as number) < 2 ** 31,
    use: (store: api.Store) => store.add('key', 1),
  },
}

/** A step that updates the average. */
async function stepOf(ema: api.ExponentialMovingAverage): Promise<void> {
  const [parameter] = averaged
  const optimizer = new api.SGD(averaged)
  const program = await api.compile(
    () => {
      const loss = parameter.square().sum()
      loss.backward()
      optimizer.step()
      ema.update()
      return { loss }
    },
    {},
    { device: 'reference' },
  )
  await program.run({})
}

const averaged = [new api.Parameter([1], Float32Array.of(1))]

const makers: Readonly<Record<string, () => object>> = {
  'ExponentialMovingAverage.decay': () => new api.ExponentialMovingAverage(averaged),
}

export const fieldsWithUses: readonly string[] = Object.keys(uses)

/** Those that a call makes, and those that the library makes and hands out. */
const classes = exported.filter(([name, value]) => isClass(value) && isMade(name))

/** Public fields of the exported classes that may be set; what several inherit, once. */
export function publicFields(
  without: Readonly<Record<string, string>> = leftOutFields,
): (Pick<Field, 'name' | 'key' | 'make'> & Partial<Use>)[] {
  const settable = classMembers().filter(({ isHidden, isSettable }) => isSettable && !isHidden)
  const fields = new Map<string, Pick<Field, 'name' | 'key' | 'make'> & Partial<Use>>()
  for (const [exportName, value] of classes) {
    const owners = new Set(prototypesOf(value).map((one) => one.constructor.name))
    for (const { owner, key } of settable) {
      const name = `${owner}.${key}`
      if (!owners.has(owner) || fields.has(name) || Object.hasOwn(without, name)) continue
      const make = makers[name] ?? makerOf(exportName, value)
      fields.set(name, { name, key, make, ...uses[name] })
    }
  }
  return [...fields.values()]
}

export const isLayer = (value: Callable): boolean => value.prototype instanceof api.Module

/** Layers whose options say only which parameters they have, and models that are made of layers. */
export const withoutSettings: readonly string[] =
  `CharRnn DataParallel DistributedDataParallel ModuleDict ModuleList ResNet RotaryEmbedding
  Sequential`.split(/\s+/)

/** Layers with the settings that they show. */
export const layerSettings = (): readonly {
  readonly name: string
  readonly keys: readonly string[]
  readonly make: () => object
}[] =>
  called.flatMap(([name, value]) => {
    if (!isLayer(value) || needsGroup.has(name)) return []
    const make = makerOf(name, value)
    const own = Object.getOwnPropertyDescriptors(make())
    const keys = Object.keys(own).filter((key) => own[key].set !== undefined)
    return keys.length > 0 ? [{ name, keys, make }] : []
  })

const needsGroup = new Set(['DistributedDataParallel'])

export type OptimizerClass = new (
  params: readonly api.Parameter[],
  options?: Readonly<Record<string, unknown>>,
) => api.Optimizer

/** Exported optimizers with the names of their settings. */
export const optimizerSettings: readonly {
  readonly name: string
  readonly Class: OptimizerClass
  readonly key: string
}[] = called.flatMap(([name, value]: [string, Callable]) => {
  if (!(value.prototype instanceof api.Optimizer)) return []
  const Class = value as unknown as OptimizerClass
  const parameter = new api.Parameter([1], new Float32Array(1))
  return Object.keys(new Class([parameter]).defaults).map((key) => ({ name, Class, key }))
})
