/** What a tab remembers over a reload, each tab for itself. A browser that blocks storage throws, and remembers nothing. */

/** Under which a tab keeps that its person was asked for a name, or gave one unasked. */
export const nameAskedKey = 'tabring-name-asked'

/** The text kept under a key; empty when there is none. */
export function recall(key: string): string {
  try {
    return sessionStorage.getItem(key) ?? ''
  } catch {
    return ''
  }
}

/** Keeps a text, or for an empty one forgets what was kept, and returns whether that could be done. */
export function remember(key: string, text: string): boolean {
  try {
    if (text === '') sessionStorage.removeItem(key)
    else sessionStorage.setItem(key, text)
    return true
  } catch {
    return false
  }
}
