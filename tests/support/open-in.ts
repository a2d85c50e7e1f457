import type { BrowserContext } from 'playwright'
import { type PageView, viewKey } from '../../src/ui/page/page-view.ts'

/** From now on the training page opens in this view in a context, as for people who chose it before; a tab that switches keeps what it chose. */
export const openIn = (view: PageView, context: Pick<BrowserContext, 'addInitScript'>) =>
  context.addInitScript(
    ([key, chosen]) => {
      // An empty page has no storage.
      if (location.origin !== 'null') sessionStorage[key] ??= chosen
    },
    [viewKey, view] as const,
  )
