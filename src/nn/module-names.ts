import { clipped } from '../util/clipped.ts'
import { TabringError } from '../util/errors.ts'
import { isOf, isPlain } from '../util/kind-of.ts'
import { checkText } from '../util/options.ts'

/** A name in camelCase: it begins with a small letter and has neither underscores nor two capitals in a row. */
const camelCase = /^[a-z][a-z0-9]*(?:[A-Z][a-z0-9]+)*[A-Z]?$/

/**
 * PyTorch's spelling of a property: `outProj` is `out_proj`.
 *
 * Names that are not in camelCase stay as they are: `W`, `W_q`, `out_proj`, `convBN`.
 */
export const keyOf = (name: string): string =>
  camelCase.test(name) ? name.replace(/[A-Z]/g, (capital) => `_${capital.toLowerCase()}`) : name

/** errors: `graph.misuse` for a name that no key can have: keys are names joined by dots. */
export function checkName(where: string, name: string): void {
  checkText(where, 'name', name)
  if (name !== '' && !name.includes('.')) return
  throw new TabringError(
    'graph.misuse',
    `${where}: expected a nonempty name without dots, got "${clipped(name)}". State-dict keys are names joined by dots.`,
  )
}

/**
 * The name to show a user, from the one so far and a key: the key of an outer module, which holds the one so far at its end, wins.
 */
export const outerName = (known: string, key: string): string =>
  known === '' || key.endsWith(`.${known}`) ? key : known

const deepestNesting = 4

/** What `isWanted` among the things that a property holds without being one, in containers within containers too. */
export function itemsWithin<T>(
  property: unknown,
  isWanted: (value: unknown) => value is T,
  depth = 1,
): T[] {
  return itemsOf(property).flatMap((value) => {
    if (isWanted(value)) return [value]
    return depth < deepestNesting ? itemsWithin(value, isWanted, depth + 1) : []
  })
}

function itemsOf(value: unknown): unknown[] {
  if (Array.isArray(value) || isOf(value, Map, Set)) return [...value.values()]
  return isPlain(value) ? Object.values(value) : []
}
