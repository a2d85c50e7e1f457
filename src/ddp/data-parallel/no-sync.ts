import { isOf } from '../../util/kind-of.ts'
import type { RingExchange } from './ring-exchange.ts'

/** Returns `fn()`; runs that belong to it exchange nothing: see `DistributedDataParallel.noSync`. */
export function withoutSync<R>(exchange: RingExchange, fn: () => R): R {
  const pause = { isAwaited: false }
  exchange.pauses.add(pause)
  const leave = () => exchange.pauses.delete(pause)
  exchange.pausing++
  let result: R
  try {
    result = fn()
  } catch (error) {
    leave()
    throw error
  } finally {
    exchange.pausing--
  }
  if (isOf(result, Promise))
    return whenTaken(result.finally(leave), () => {
      pause.isAwaited = true
    }) as R
  leave()
  return result
}

/** The promise, which calls `taken` when it is awaited or returned: `await` reads its constructor, and `return` in an async function `then`. */
function whenTaken<T>(promise: Promise<T>, taken: () => void): Promise<T> {
  for (const name of ['constructor', 'then'])
    Object.defineProperty(promise, name, {
      get() {
        taken()
        return Reflect.get(Promise.prototype, name)
      },
    })
  return promise
}
