import type { BrowserContext, Page } from 'playwright'
import { iceWithoutRoutePermissions } from '../node/chromium.ts'
import { newRoomLink } from '../src/peer/room/secret.ts'
import type { Host } from './host.ts'

export interface JoinTabsOptions {
  transport?: 'webrtc' | 'port' | 'relay'
  /** Connections of each WebRTC link. */
  lanes?: number
  /** Packets of each tab travel so much longer, by the browser's own emulation. */
  latencyMs?: number
}

/** Opens tabs that form a ring: over WebRTC or the relay each in a separate browser context, over MessagePorts in one. Close their contexts in the end. */
export async function joinTabs(
  { browser, url }: Host,
  worldSize: number,
  { transport = 'webrtc', lanes = 1, latencyMs = 0 }: JoinTabsOptions = {},
): Promise<Page[]> {
  const link = newRoomLink()
  const pages: Page[] = []
  const common = transport === 'port' ? await browser.newContext() : undefined
  for (let rank = 0; rank < worldSize; rank++) {
    const page = await openTab(
      common ?? (await browser.newContext()),
      `${url}tab.html?lanes=${lanes}`,
      latencyMs,
    )
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

async function openTab(context: BrowserContext, url: string, latencyMs: number): Promise<Page> {
  await context.grantPermissions(iceWithoutRoutePermissions)
  const page = await context.newPage()
  await page.goto(url)
  await page.waitForFunction(() => window.ringTab !== undefined)
  if (latencyMs > 0) {
    const devtools = await context.newCDPSession(page)
    await devtools.send('Network.enable')
    const unlimited = { downloadThroughput: -1, uploadThroughput: -1 }
    await devtools.send('Network.emulateNetworkConditions', {
      offline: false,
      latency: latencyMs,
      ...unlimited,
    })
  }
  return page
}
