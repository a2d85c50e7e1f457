import type { Store } from '../../peer/store/store.ts'
import { toHex } from '../../util/env.ts'
import { TabringError } from '../../util/errors.ts'

/** What joining ranks ask of a store beside its own calls. */

/** What is under a key now, as text; undefined where there is nothing. */
export async function peek(store: Store, key: string): Promise<string | undefined> {
  // compareSet returns what it expected where there is nothing, and so never changes what is not this.
  const nobodys = toHex(crypto.getRandomValues(new Uint8Array(16)))
  const found = decode(await store.compareSet(key, nobodys, nobodys))
  return found === nobodys ? undefined : found
}

/** Sets a key that has no value, and returns its value afterwards. */
export async function putFirst(store: Store, key: string, value: string): Promise<string> {
  return decode(await store.compareSet(key, '', value))
}

/** Returns whether all keys are there within a time. units: ms. */
export async function appear(
  store: Store,
  keys: readonly string[],
  limitMs: number,
): Promise<boolean> {
  try {
    // 0 would be for ever.
    await store.wait(keys, Math.max(1, Math.ceil(limitMs)))
    return true
  } catch (thrown) {
    if (thrown instanceof TabringError && thrown.code === 'peer.timeout') return false
    throw thrown
  }
}

export async function read(store: Store, key: string): Promise<string> {
  return decode(await store.get(key))
}

export const decode = (bytes: Uint8Array) => new TextDecoder().decode(bytes)
