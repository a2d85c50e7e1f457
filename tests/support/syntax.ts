/** A node of a file's syntax, as `parseSync` gives it. */
export interface Syntax {
  readonly type: string
  readonly start: number
  readonly end: number
  readonly id?: { readonly name: string } | null
  readonly key?: { readonly type: string; readonly name: string }
}

const isSyntax = (value: unknown): value is Syntax =>
  typeof value === 'object' && value !== null && 'type' in value

/** Calls `visit` for a node and all below it. */
export function walk(node: Syntax, visit: (node: Syntax) => void): void {
  visit(node)
  for (const value of Object.values(node))
    for (const one of Array.isArray(value) ? value : [value]) if (isSyntax(one)) walk(one, visit)
}
