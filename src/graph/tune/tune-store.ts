import type { TuneStore } from '../../kernels/tune.ts'
import type { Runtime } from '../memory/runtime.ts'

const storeName = 'variants'

const settled = <T>(request: IDBRequest<T>): Promise<T> =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result)
    request.onerror = () => reject(request.error)
  })

/**
 * Tuned kernel choices in this origin's IndexedDB, by call, adapter, browser and shader text.
 *
 * Where the browser keeps nothing (private windows, blocked site data) choices are measured again each time.
 */
export function openTuneStore(): TuneStore {
  let database: Promise<IDBDatabase> | undefined
  const open = () => {
    const opening = indexedDB.open('tabring-tuning', 1)
    opening.onupgradeneeded = () => opening.result.createObjectStore(storeName)
    return settled(opening)
  }
  const store = async (mode: IDBTransactionMode) => {
    database ??= open()
    return (await database).transaction(storeName, mode).objectStore(storeName)
  }
  return {
    async get(key) {
      try {
        return await settled((await store('readonly')).get(key))
      } catch {
        return undefined // as good as never measured
      }
    },
    async set(key, variant) {
      try {
        await settled((await store('readwrite')).put(variant, key))
      } catch {
        // The next visit measures again.
      }
    },
  }
}

/** Environment that a measured choice holds for: the adapter and the browser, as text. Firefox names no adapter: its limits stand in. */
export function environmentOf({ gpu: { facts }, limits }: Pick<Runtime, 'gpu' | 'limits'>): string {
  const { vendor, architecture, description } = facts
  const name = `${vendor} ${architecture} ${description}`
  return `${name.trim() === '' ? JSON.stringify(limits) : name} ${globalThis.navigator?.userAgent ?? 'Node'}`
}
