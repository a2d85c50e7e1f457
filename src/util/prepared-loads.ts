/** What has a state that can be loaded; `prepareLoad`, if any, checks it, and what it returns loads it and cannot fail. */
interface Loadable {
  loadStateDict(state: never): unknown
}

const protoWith = (name: string, object: object | null): object | null =>
  object === null || Object.hasOwn(object, name)
    ? object
    : protoWith(name, Object.getPrototypeOf(object))

/** Whether `preparing` prepares what its method `whole` does. A class of a user may have a method that replaces the one that does so. */
export function canPrepare<Name extends string>(
  part: object,
  preparing: Name,
  whole: string,
): part is { [Key in Name]: (state: never) => () => unknown } {
  const own = protoWith(preparing, part)
  return own !== null && protoWith(whole, own) === protoWith(whole, part)
}

/**
 * Checks all states that can be checked, and returns what loads each: parts that cannot check theirs come first, and the rest cannot fail.
 * So that either all parts of the library change, or none.
 *
 * errors: those of the parts.
 */
export function preparedLoads(
  parts: Iterable<readonly [part: Loadable, state: unknown]>,
): (() => unknown)[] {
  const unchecked: (() => unknown)[] = []
  const checked: (() => unknown)[] = []
  for (const [part, state] of parts) {
    if (canPrepare(part, 'prepareLoad', 'loadStateDict'))
      checked.push(part.prepareLoad(state as never))
    else unchecked.push(() => part.loadStateDict(state as never))
  }
  return [...unchecked, ...checked]
}
