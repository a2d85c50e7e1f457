import type { BrowserContext, Page } from 'playwright'
import { iceWithoutRoutePermissions } from '../node/chromium.ts'
import { newRoomLink } from '../src/peer/secret.ts'
import type { Host } from './host.ts'

/** Opens tabs that form a ring: over WebRTC each in a browser context of its own, over MessagePorts in one. Close their contexts in the end. */
export async function joinTabs(
  { browser, url }: Host,
  worldSize: number,
  transport: 'webrtc' | 'port' = 'webrtc',
): Promise<Page[]> {
  const link = newRoomLink()
  const pages: Page[] = []
  const common = transport === 'port' ? await browser.newContext() : undefined
  for (let rank = 0; rank < worldSize; rank++) {
    const page = await openTab(common ?? (await browser.newContext()), `${url}tab.html`)
    await page.evaluate(([given, name, kind]) => window.ringTab.join(given, name, kind), [
      link,
      `tab ${rank}`,
      transport,
    ] as const)
    pages.push(page)
  }
  await pages[0].evaluate((count) => window.ringTab.start(count), worldSize)
  await Promise.all(pages.map((page) => page.evaluate(() => window.ringTab.ready())))
  return pages
}

async function openTab(context: BrowserContext, url: string): Promise<Page> {
  await context.grantPermissions(iceWithoutRoutePermissions)
  const page = await context.newPage()
  await page.goto(url)
  await page.waitForFunction(() => window.ringTab !== undefined)
  return page
}
