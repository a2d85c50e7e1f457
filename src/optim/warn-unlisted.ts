import type { Parameter } from '../graph/trace/parameter.ts'
import type { Trace } from '../graph/trace/trace.ts'
import { formatShape } from '../util/shape.ts'
import { owners } from './parameter-buckets.ts'

const warned = new WeakSet<Parameter>()

/**
 * Warns, once for each parameter, of those that got a gradient but are in no optimizer and were never listed by a module.
 *
 * A module cannot see its `#private` fields, so what lies there would neither learn nor be saved, without an error. Parameters of modules
 * that were listed and left out of the optimizer on purpose (fine-tuning), and parts of
 * divided ones, are passed over.
 */
export function warnOfUnlisted({ gradients }: Trace): void {
  const unlisted = [...gradients.keys()].filter(
    (parameter) =>
      !parameter.isListed &&
      !parameter.sharedBy &&
      !owners.has(parameter) &&
      !warned.has(parameter),
  )
  if (unlisted.length === 0) return
  for (const parameter of unlisted) warned.add(parameter)
  const shown = unlisted.slice(0, 4).map(({ shape }) => formatShape(shape))
  if (unlisted.length > shown.length) shown.push('...')
  console.warn(
    `tabring optimizer.step: ${unlisted.length} parameters (${shown.join(', ')}) have gradients but belong to no optimizer, and no module lists them. A module sees those in plain or TypeScript-private properties alone, not in #private fields, arrays, maps or objects: call parameters() of the module that uses them, which names what it cannot list. If they should not be trained, call requiresGrad_(false).`,
  )
}
