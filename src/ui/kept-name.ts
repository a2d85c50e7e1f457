/** The name of this tab over a reload; each tab has its own. A browser that blocks storage throws, and keeps none. */
const key = 'tabring-name'

export function readName(): string {
  try {
    return sessionStorage.getItem(key) ?? ''
  } catch {
    return ''
  }
}

export function keepName(name: string): void {
  try {
    sessionStorage.setItem(key, name)
  } catch {
    // Not kept: after a reload the tab has a new one.
  }
}
