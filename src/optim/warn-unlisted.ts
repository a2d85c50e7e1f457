import type { Parameter } from '../graph/trace/parameter.ts'
import type { Trace } from '../graph/trace/trace.ts'
import { type Holding, holdingsOf } from '../graph/trace/value.ts'
import { formatShape } from '../util/shape.ts'
import { owners } from './parameter-buckets.ts'

const warned = new WeakSet<Parameter>()

/**
 * Warns, once for each parameter, of those that got a gradient but are in no optimizer: where they came into the model of `own`, an optimizer's
 * parameters, after these were listed, and where no module ever listed them.
 *
 * A module cannot see its `#private` fields, so what lies there would neither learn nor be saved, without an error. Parameters of modules
 * that were listed and left out of the optimizer on purpose (fine-tuning), and parts of
 * divided ones, are passed over.
 */
export function warnOfUnlisted({ gradients }: Trace, own: readonly Parameter[]): void {
  const untrained = [...gradients.keys()].filter(
    (parameter) => !parameter.sharedBy && !owners.has(parameter) && !warned.has(parameter),
  )
  if (untrained.length === 0) return
  const unlisted = untrained.filter(({ isListed }) => !isListed)
  const holdings = own.map((parameter): Holding[] => [...holdingsOf(parameter)])
  const isReplaced = holdings.some((all) => !all.every((holding) => holding.isKept()))
  const models = new Set(holdings.flatMap((all) => all.at(-1)?.holder ?? []))
  const held = new Set([...models].flatMap((model) => model.parameters()))
  const late = (isReplaced ? untrained : unlisted).filter((parameter) => held.has(parameter))
  warn(
    late,
    'they came into the model after the optimizer was created, as those of a replaced layer do, and are not trained. Create the optimizer after the model is changed, or call addParamGroup({ params }) with them.',
  )
  warn(
    unlisted.filter((parameter) => !held.has(parameter)),
    'no module lists them. A module sees those in plain or TypeScript-private properties alone, not in #private fields, arrays, maps or objects: call parameters() of the module that uses them, which names what it cannot list. If they should not be trained, call requiresGrad_(false).',
  )
}

function warn(parameters: readonly Parameter[], why: string): void {
  if (parameters.length === 0) return
  for (const parameter of parameters) warned.add(parameter)
  const shown = parameters
    .slice(0, 4)
    .map(({ name, shape }) => `${name && `"${name}" `}${formatShape(shape)}`)
  if (parameters.length > shown.length) shown.push('...')
  console.warn(
    `tabring optimizer.step: ${parameters.length} parameters (${shown.join(', ')}) have gradients but belong to no optimizer: ${why}`,
  )
}
