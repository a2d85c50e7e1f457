/**
 * Returns `read` with a limit: one key is read at a time, and other keys wait for their turn. All who ask for a key that waits, is being
 * read, or was read to its end within the last `keptMs` share one result, or one error.
 */
export function sharedReads<Result>(
  read: (key: string) => Promise<Result>,
  keptMs: number,
): (key: string) => Promise<Result> {
  const shared = new Map<string, Promise<Result>>()
  let turn: Promise<unknown> = Promise.resolve()
  return (key) => {
    const known = shared.get(key)
    if (known) return known
    const result = turn.then(() => read(key))
    shared.set(key, result)
    const forgetLater = () => void setTimeout(() => shared.delete(key), keptMs).unref()
    turn = result.then(forgetLater, forgetLater)
    return result
  }
}
