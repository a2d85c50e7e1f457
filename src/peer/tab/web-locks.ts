/** How contexts of one browser learn that another has gone: it holds a Web Lock, which the browser frees when it ends, however it ends. */

/** Takes a lock and resolves with what lets go of it. Without Web Locks, at once. */
export function holdLock(name: string): Promise<() => void> {
  if (!navigator.locks) return Promise.resolve(() => undefined)
  return new Promise((resolve, reject) => {
    navigator.locks
      .request(name, () => new Promise<void>((release) => resolve(release)))
      .catch(reject)
  })
}

/** Resolves when the holder of the lock has let go; never once `signal` has fired, nor without Web Locks. */
export function lockFree(name: string, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    navigator.locks
      ?.request(name, { signal }, () => resolve())
      .catch((thrown) => {
        if (!signal.aborted) throw thrown
      })
  })
}
