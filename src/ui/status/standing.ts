import type { Tone } from '../parts/status-dot.tsx'

/** Where the tab stands, in a title and one sentence. */
export interface Status {
  readonly tone: Tone
  readonly title: string
  readonly text: string
  /** The sentence where there is little room; else that one. */
  readonly short?: string
  /** For those who look deeper, folded away. */
  readonly more?: { readonly summary: string; readonly text: string }
}
