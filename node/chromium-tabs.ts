import type { Browser, BrowserContext, Page } from 'playwright'
import { messageOf } from '../src/util/errors.ts'
import { iceWithoutRoutePermissions } from './chromium.ts'
import { type Tab, type TabBrowser, type TabSettings, tabCrashed, tellClosed } from './tab.ts'

/** A browser context such as another machine would have: no shared storage, no shared worker. With `origin` the permissions are its alone. */
export async function ownContext(browser: Browser, origin?: string): Promise<BrowserContext> {
  const context = await browser.newContext()
  await context.grantPermissions(iceWithoutRoutePermissions, origin === undefined ? {} : { origin })
  return context
}

/** Playwright's Chromium as launchers need it. */
export function chromiumTabs(browser: Browser): TabBrowser {
  let common: Promise<BrowserContext> | undefined
  return {
    async openTab(settings) {
      if (!settings.sharesContext)
        return openTab(await ownContext(browser, settings.origin), settings)
      common ??= ownContext(browser, settings.origin)
      return openTab(await common, settings)
    },
    onGone(listener) {
      browser.once('disconnected', listener)
      return () => browser.off('disconnected', listener)
    },
    close: () => browser.close(),
  }
}

async function openTab(context: BrowserContext, settings: TabSettings): Promise<Tab> {
  let page: Page | undefined
  const close = async () => (settings.sharesContext ? page?.close() : context.close())
  try {
    const opened = await context.newPage()
    page = opened
    await preparePage(opened, settings)
    return {
      load: (url, timeoutMs) => load(opened, url, timeoutMs),
      evaluate: (run, given) =>
        opened.evaluate(run as (given: unknown) => unknown, given) as Promise<never>,
      close,
    }
  } catch (thrown) {
    await close().catch(() => undefined)
    throw thrown
  }
}

/** Gives a blank page what `settings` say, from its first document on; without `origin`, whatever it loads. */
export async function preparePage(page: Page, settings: Partial<TabSettings>): Promise<void> {
  const { origin, constants = {}, functions = {}, forWorkers = [] } = settings
  const { onCrash, onError, onPage, onConsole } = settings
  await page.addInitScript(
    ([own, values, names]) => {
      if (own !== null && (window !== window.top || location.origin !== own)) return
      for (const [name, value] of Object.entries(values))
        Object.defineProperty(globalThis, name, { value })
      const take = globalThis as unknown as Record<string, (words: unknown) => void>
      for (const name of names)
        new BroadcastChannel(name).onmessage = ({ data }) => take[name](data)
    },
    [origin ?? null, constants, forWorkers] as const,
  )
  page.on('crash', () => onCrash?.(tabCrashed))
  page.on('close', () => tellClosed(settings))
  page.on('pageerror', (error) => onError?.(error))
  page.on('framenavigated', (frame) => {
    if (frame === page.mainFrame()) onPage?.(frame.url())
  })
  page.on('console', (message) => onConsole?.(message.type(), message.text()))
  for (const [name, run] of Object.entries(functions)) await page.exposeFunction(name, run)
}

async function load(page: Page, url: string, timeout: number): Promise<number> {
  try {
    const response = await page.goto(url, { waitUntil: 'commit', timeout })
    return response?.status() ?? 0
  } catch (thrown) {
    // Playwright's words have the address in them, which may hold a room's secret.
    const text = messageOf(thrown)
    throw new Error(
      /net::\w+|Timeout \d+ms/.exec(text)?.[0] ?? text.split('\n')[0].split(' at ')[0],
    )
  }
}
