/** What has a state that can be loaded; `prepareLoad` checks it, and what it returns loads it and cannot fail. */
interface Loadable {
  loadStateDict(state: never): unknown
  prepareLoad?(state: never): () => unknown
}

const protoWith = (name: string, object: object | null): object | null =>
  object === null || Object.hasOwn(object, name)
    ? object
    : protoWith(name, Object.getPrototypeOf(object))

/** Returns whether its state can be checked before it is loaded. A class of a user may have a `loadStateDict` that replaces the one that does so. */
function canPrepare(part: Loadable): part is Required<Loadable> {
  const preparing = protoWith('prepareLoad', part)
  return (
    preparing !== null && protoWith('loadStateDict', preparing) === protoWith('loadStateDict', part)
  )
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
    if (canPrepare(part)) checked.push(part.prepareLoad(state as never))
    else unchecked.push(() => part.loadStateDict(state as never))
  }
  return [...unchecked, ...checked]
}
