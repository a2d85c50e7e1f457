import { clipped } from '../util/clipped.ts'
import { TabringError } from '../util/errors.ts'
import { hasNames, isRecord } from '../util/kind-of.ts'
import { checkRecord } from '../util/options.ts'
import { type Shape, sameShape } from '../util/shape.ts'

/** What wrapping a model puts before its keys: the property in which `DistributedDataParallel` and PyTorch's wrappers hold it. */
const prefix = 'module.'

/**
 * Returns the state dict with `module.` before every key, like the keys inside `DistributedDataParallel`.
 *
 * Every key gets the prefix, even one that already has it, so `stripModulePrefix` restores the original state dict.
 */
export function addModulePrefix<T>(stateDict: Readonly<Record<string, T>>): Record<string, T> {
  checkRecord('addModulePrefix', 'stateDict', stateDict)
  const entries = Object.entries(stateDict)
  return Object.fromEntries(entries.map(([key, value]) => [`${prefix}${key}`, value]))
}

/**
 * Returns the state dict with one leading `module.` removed from each key that has it; other keys, including `modules.0.weight`, do not
 * change.
 *
 * errors: `data.malformed` if two keys become equal.
 */
export function stripModulePrefix<T>(stateDict: Readonly<Record<string, T>>): Record<string, T> {
  checkRecord('stripModulePrefix', 'stateDict', stateDict)
  const stripped = new Map<string, T>()
  for (const [key, value] of Object.entries(stateDict)) {
    const own = withoutPrefix(key)
    if (stripped.has(own)) {
      throw new TabringError(
        'data.malformed',
        `stripModulePrefix: without "${clipped(prefix)}" two keys become "${clipped(own)}". Remove the entries of one of the two models.`,
      )
    }
    stripped.set(own, value)
  }
  return Object.fromEntries(stripped)
}

/**
 * Returns the state dict with the keys of a model, `own`, where a key differs from one of them by wrappers alone.
 *
 * A key of the model stays as it is, also in a model that has a property called `module`. Any number of `module.` in front, and the
 * `_orig_mod.` of `torch.compile` anywhere, may be there or not, and one prefix before just these keys, such as Lightning's `model.`. A key
 * that fits neither way stays too.
 */
export function fitModulePrefix<T>(
  stateDict: Readonly<Record<string, T>>,
  own: ReadonlySet<string>,
): Record<string, T> {
  const wanted = new Map([...own].map((key) => [withoutWrappers(key), key]))
  const taken = new Set(Object.keys(stateDict))
  const outer = taken.size === own.size ? outerPrefix(stateDict, own).length : 0
  const fitting = (key: string): string => {
    const other = own.has(key) ? undefined : wanted.get(withoutWrappers(key).slice(outer))
    if (other === undefined || taken.has(other)) return key
    taken.add(other)
    return other
  }
  return Object.fromEntries(Object.entries(stateDict).map(([key, value]) => [fitting(key), value]))
}

/** What to do with a state without any key of a model, whose tensors `own` has by key. */
export function remedyOfKeys(
  state: object,
  own: ReadonlyMap<string, { readonly stateShape: Shape }>,
): string {
  const isTensor = (value: unknown) => isRecord(value) && 'data' in value
  const holds = ([, value]: [string, unknown]) =>
    hasNames(value) && !isTensor(value) && Object.values(value).some(isTensor)
  const [below] = Object.entries(state).find(holds) ?? []
  if (below !== undefined) return `Its tensors lie below ${clipped(below)}: pass that part of it`
  const isLike = (key: string, value: unknown) =>
    isRecord(value) && isSaved(value['shape'], own.get(key)!.stateShape)
  const outer = outerPrefix(state, own.keys(), isLike)
  return outer
    ? `There this model's keys begin with "${clipped(outer)}": pass those, without it`
    : 'Load a file saved for this model'
}

/** Returns whether a saved tensor of that shape fits one of the model: of a single number PyTorch saves either form. */
export const isSaved = (saved: unknown, own: Shape): boolean =>
  Array.isArray(saved) && (sameShape(saved, own) || (own.length === 0 && sameShape(saved, [1])))

/** What a state has before every key of a model, and '' without such a prefix. Wrappers do not count. `isLike`: whether a value is one of that key. */
function outerPrefix(
  state: object,
  own: Iterable<string>,
  isLike: (key: string, value: unknown) => boolean = () => true,
): string {
  const all = [...own]
  const [first = ''] = all.map(withoutWrappers)
  const saved = new Map(Object.entries(state).map(([key, value]) => [withoutWrappers(key), value]))
  const ends = [...saved.keys()].filter((key) => key.endsWith(`.${first}`))
  const prefixes = ends.map((key) => key.slice(0, key.length - first.length))
  const holds = (prefix: string) => (key: string) => {
    const inner = prefix + withoutWrappers(key)
    return saved.has(inner) && isLike(key, saved.get(inner))
  }
  return prefixes.find((prefix) => all.every(holds(prefix))) ?? ''
}

const withoutWrappers = (key: string): string =>
  key.replace(/(?<=^|\.)_orig_mod\./g, '').replace(/^(?:module\.)+/, '')

const withoutPrefix = (key: string): string =>
  key.startsWith(prefix) && key.length > prefix.length ? key.slice(prefix.length) : key
