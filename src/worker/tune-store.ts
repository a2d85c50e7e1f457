import type { TuneStore } from '../kernels/tune.ts'

const storeName = 'variants'

const settled = <T>(request: IDBRequest<T>): Promise<T> =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result)
    request.onerror = () => reject(request.error)
  })

/** Tuned kernel choices in this origin's IndexedDB, by call, adapter, browser and shader text. */
export function openTuneStore(): TuneStore {
  const opening = indexedDB.open('tabring-tuning', 1)
  opening.onupgradeneeded = () => opening.result.createObjectStore(storeName)
  const database = settled(opening)
  const store = async (mode: IDBTransactionMode) =>
    (await database).transaction(storeName, mode).objectStore(storeName)
  return {
    get: async (key) => settled((await store('readonly')).get(key)),
    set: async (key, variant) => {
      await settled((await store('readwrite')).put(variant, key))
    },
  }
}
