import { clipped } from '../../util/clipped.ts'
import { TabringError } from '../../util/errors.ts'
import { quoted } from '../../util/kind-of.ts'
import { withArticle } from '../../util/with-article.ts'
import { Conv1D } from '../gpt.ts'
import { Linear } from '../layers.ts'
import type { Module } from '../module.ts'
import type { LoraConfig } from './config.ts'

/** A layer that can have an adapter. */
export type LinearLayer = Linear | Conv1D

/** Returns whether a key or a path is of an adapter and not of the base. */
export const isOfAdapter = (key: string): boolean =>
  /(?:^|\.)lora_(?:A|B|dropout)(?:\.|$)/.test(key)

const isLinear = (module: Module): module is LinearLayer =>
  module instanceof Linear || module instanceof Conv1D

/** Returns whether a path is one of the names, or ends with it as in PEFT: `q_proj` names `layers.0.q_proj`. */
export const isNamed = (path: string, names: readonly string[]): boolean =>
  names.some((name) => path === name || path.endsWith(`.${name}`))

/** A Conv1D's weight is [inFeatures, outFeatures]: PEFT's `fan_in_fan_out`. */
export const isTransposed = (layer: LinearLayer): boolean => !(layer instanceof Linear)

/** Features of a layer, whichever way its weight lies. */
export function sizesOf(layer: LinearLayer): { outFeatures: number; inFeatures: number } {
  const [first, second] = layer.weight.stateShape
  return isTransposed(layer)
    ? { outFeatures: second, inFeatures: first }
    : { outFeatures: first, inFeatures: second }
}

/** Modules of the base, and not of adapters, with their paths. */
const modulesOf = (base: Module): [path: string, module: Module][] =>
  [...base.namedModules()].filter(([path]) => path !== '' && !isOfAdapter(path))

/** The linear layers by their paths in the base. */
export const linearLayers = (base: Module): Map<string, LinearLayer> =>
  new Map(modulesOf(base).filter((one): one is [string, LinearLayer] => isLinear(one[1])))

/**
 * The layers that targets name, by their paths in the base.
 *
 * errors: `graph.misuse` for a name that no module has, listing the linear layers, and for a module that is not one of them.
 */
export function layersOf(
  where: string,
  base: Module,
  targets: LoraConfig['targetModules'],
): Map<string, LinearLayer> {
  const modules = modulesOf(base)
  const paths = [...linearLayers(base).keys()]
  const named = matcher(where, targets, paths)
  const chosen = modules.filter(([path]) => named(path))
  const lost = Array.isArray(targets)
    ? targets.find((name: string) => !modules.some(([path]) => isNamed(path, [name])))
    : chosen.length === 0
      ? String(targets)
      : undefined
  if (lost !== undefined || chosen.length === 0)
    throw new TabringError(
      'graph.misuse',
      `${where}: targetModules: ${lost === undefined ? 'the list is empty' : `no layer of the model has the name ${quoted(lost)}`}. The linear layers are ${clipped(shortened(paths), 600) || 'none'}.`,
    )
  const other = chosen.find(([, module]) => !isLinear(module))
  if (other)
    throw new TabringError(
      'graph.misuse',
      `${where}: "${clipped(other[0])}" is ${withArticle(other[1].constructor.name)}, and only Linear and Conv1D can have an adapter. The linear layers are ${clipped(shortened(paths), 600) || 'none'}.`,
    )
  return new Map(chosen as [string, LinearLayer][])
}

function matcher(
  where: string,
  targets: LoraConfig['targetModules'],
  linear: readonly string[],
): (path: string) => boolean {
  if (targets === 'all-linear') {
    const last = linear.at(-1)
    const hidden = last?.includes('.') ? linear : linear.slice(0, -1)
    return (path) => hidden.includes(path)
  }
  if (typeof targets === 'string' || targets instanceof RegExp) {
    const pattern = typeof targets === 'string' ? patternOf(where, targets) : targets
    const whole = new RegExp(`^(?:${pattern.source})$`, pattern.flags.replace(/[gy]/g, ''))
    return (path) => whole.test(path)
  }
  return (path) => isNamed(path, targets)
}

/** errors: `config.invalid`. */
function patternOf(where: string, text: string): RegExp {
  try {
    return new RegExp(text)
  } catch {
    throw new TabringError(
      'config.invalid',
      `${where}: targetModules must be a regular expression, got ${quoted(text)}. Write a list for names: ['${clipped(text)}'].`,
    )
  }
}

/** The paths, with one for those that differ in numbers alone. */
function shortened(paths: readonly string[]): string {
  const names = paths.map((path) => path.replace(/(?<=^|\.)\d+(?=\.)/g, '*'))
  return [...new Set(names)].join(', ')
}
