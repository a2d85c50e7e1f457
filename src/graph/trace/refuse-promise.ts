import { TabringError } from '../../util/errors.ts'

/** errors: `graph.misuse` where a function that is traced gave a promise: what it does after its first await nobody would see. */
export function refusePromise(where: string, returned: unknown): void {
  const isObject = typeof returned === 'object' && returned !== null
  if (!isObject || !('then' in returned) || typeof returned.then !== 'function') return
  // The error below reports the mistake; the promise must not count as unhandled besides.
  Promise.resolve(returned).catch(() => undefined)
  throw new TabringError(
    'graph.misuse',
    `${where}: the function returned a promise, but tracing is synchronous. Remove async and await, wait for data before compile, and pass values that change with each run as inputs.`,
  )
}
