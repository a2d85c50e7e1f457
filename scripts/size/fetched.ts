import type { Browser } from 'playwright'
import type { Served } from '../../node/serve.ts'

/** Files of JavaScript by their path below the served folder, in the order in which a browser asked for them. */
export interface Fetched {
  /** From opening the page until Start can be pressed and this tab has measured its device: page, workers, and what they load by themselves. */
  readonly firstLoad: readonly string[]
  /** From pressing Start to the first training step. */
  readonly start: readonly string[]
}

/**
 * What a browser with an empty cache fetches for a page of the built ones, as the server sees it: workers' requests are among them.
 *
 * `path` stands behind the server's address: '' is the page as it begins.
 */
export async function fetchedBy(browser: Browser, served: Served, path = ''): Promise<Fetched> {
  const asked: string[] = []
  const take = ({ url = '' }: { url?: string | undefined }) => {
    const name = url.replace(/^\//, '').replace(/[?#].*/, '')
    if (name.endsWith('.js') && !asked.includes(name)) asked.push(name)
  }
  served.server.on('request', take)
  const context = await browser.newContext({ viewport: { width: 1400, height: 900 } })
  try {
    const page = await context.newPage()
    await page.goto(`${served.localUrl}${path}`)
    const start = page.locator('button.go:enabled', { hasText: /^Start$/ })
    await start.waitFor()
    await page.locator('.member .fact', { hasText: 'GFLOP/s' }).waitFor()
    const firstLoad = [...asked]
    await start.click()
    await page.locator('.chart[aria-label*="at step"]').waitFor({ timeout: 120_000 })
    return { firstLoad, start: asked.slice(firstLoad.length) }
  } finally {
    served.server.off('request', take)
    await context.close()
  }
}
