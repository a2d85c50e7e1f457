import type { Store } from '../state/store.ts'

/** Shorter tests pass unnamed: a word that comes and goes within a moment is not read. units: ms. */
export const longTestMs = 500

/** Dispatches an action for each test that lasts. */
export function watchTests(
  store: Store,
  after: (delayMs: number, run: () => void) => () => void = afterOnPage,
): void {
  let watched: number | null = null
  let cancel: () => void = () => undefined
  store.onChange(({ run }) => {
    const sinceMs = run && !run.end ? run.testingSinceMs : null
    if (sinceMs === watched) return
    cancel()
    cancel = () => undefined
    watched = sinceMs
    if (sinceMs !== null)
      cancel = after(longTestMs, () => store.dispatch({ type: 'testLasts', sinceMs }))
  })
}

/** Calls `run` after that time, unless what it returns is called before. */
export function afterOnPage(delayMs: number, run: () => void): () => void {
  const timer = setTimeout(run, delayMs)
  return () => clearTimeout(timer)
}
