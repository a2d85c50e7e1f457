import type { Browser, BrowserContext, Page } from 'playwright'
import { iceWithoutRoutePermissions } from './chromium.ts'

/** A browser context such as a machine of its own would have: no shared storage, no shared worker. With `origin` the permissions are its alone. */
export async function ownContext(browser: Browser, origin?: string): Promise<BrowserContext> {
  const context = await browser.newContext()
  await context.grantPermissions(iceWithoutRoutePermissions, origin === undefined ? {} : { origin })
  return context
}

/** What is told of a browser that has gone with all its tabs. */
export const browserGone = 'browser: it crashed or was closed before the run ended. Start again.'

/** What may end a rank's tab before the rank has ended; called whenever it happens, at the end too. */
export interface TabLosses {
  onCrash(text: string): void
  /** A moment later: if the browser has ended with all its tabs, that is known first. */
  onClose(text: string): void
  /** An error that nobody caught. */
  onError(error: Error): void
}

/** A browser that ends tells so some milliseconds after the ends of its tabs. */
const closeGraceMs = 200

/** Tells of the end of a tab that was to live until its rank has ended. */
export function watchTab(page: Page, { onCrash, onClose, onError }: TabLosses): void {
  page.on('crash', () => onCrash('its tab crashed. Is the machine out of memory?'))
  page.on('close', () =>
    setTimeout(() => onClose('its tab was closed before the run ended.'), closeGraceMs),
  )
  page.on('pageerror', onError)
}
