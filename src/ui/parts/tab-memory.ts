/** What is remembered over a reload, by each tab for itself or by the browser. A browser that blocks storage throws, and remembers nothing. */

type Memory = 'sessionStorage' | 'localStorage'

/** Under which a tab keeps that its person was asked for a name, or gave one unasked. */
export const nameAskedKey = 'tabring-name-asked'

/** The text kept under a key; empty when there is none. */
export function recall(key: string, memory: Memory = 'sessionStorage'): string {
  try {
    return globalThis[memory].getItem(key) ?? ''
  } catch {
    return ''
  }
}

/** Keeps a text, or for an empty one forgets what was kept, and returns whether that could be done. */
export function remember(key: string, text: string, memory: Memory = 'sessionStorage'): boolean {
  try {
    if (text === '') globalThis[memory].removeItem(key)
    else globalThis[memory].setItem(key, text)
    return true
  } catch {
    return false
  }
}
