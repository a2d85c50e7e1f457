import type { ViewLoaders } from '../demo/view-props.ts'
import { recall, remember } from '../parts/tab-memory.ts'
import type { Acts } from '../state/acts.ts'
import { isLocalPage } from '../state/server-facts.ts'
import type { Snapshot } from '../state/snapshot.ts'

/** `show`: the demo and who trains it; `lab`: settings and instruments. */
export type PageView = 'show' | 'lab'

export interface ViewProps {
  readonly snapshot: Snapshot
  readonly acts: Acts
  /** What demos show. */
  readonly views: ViewLoaders
}

/** Under which a tab keeps its view. */
export const viewKey = 'tabring-view'

/** Where it cannot be kept, a reload asks again with which view to begin. */
export const keepView = (view: PageView): boolean => remember(viewKey, view)

/** How a person came to the page. */
export interface Arrival {
  /** The page's address. */
  readonly href: string
  /** It had the link of a room. */
  readonly isGuest: boolean
  /** By a demo's own page, or without a setting in the address. */
  readonly isPlain: boolean
  readonly isNarrow: boolean
}

/** The view that the page begins with: what this tab showed before a reload, else the Lab for those alone whose address has settings. */
export function firstView({ href, isGuest, isPlain, isNarrow }: Arrival): PageView {
  const kept = recall(viewKey)
  if (kept === 'show' || kept === 'lab') return kept
  // On localhost https is for other machines.
  const isServed = !isLocalPage(href) || href.startsWith('https:')
  return isGuest || isPlain || isNarrow || isServed ? 'show' : 'lab'
}
