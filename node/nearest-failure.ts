// Of several ranks that fail together, the one whose failure is reported.

/** How long a failure that may be the echo of another waits for it. */
export const graceMs = 700

/** Steps from the cause: ranks that lose a neighbour report it, usually before the neighbour's own report arrives. */
const distance = (code: string) => (code === 'peer.aborted' ? 2 : isEcho(code) ? 1 : 0)

/** Whether a failure of this code may tell of that of another rank. */
export const isEcho = (code: string): boolean => /^(peer|signal)\./.test(code)

/** Returns the failure nearest to the cause, of those the first. */
export const nearest = <Failure extends { readonly code: string }>(
  failures: readonly Failure[],
): Failure | undefined => failures.toSorted((a, b) => distance(a.code) - distance(b.code))[0]
