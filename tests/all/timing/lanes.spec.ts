import type { Browser, Page } from 'playwright'
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest'
import { iceWithoutRoutePermissions } from '../../../node/chromium.ts'
import { servePages } from '../../../node/own-pages.ts'
import { newRoomUrl } from '../../../src/peer/room/room-url.ts'
import type { InitTab } from '../../e2e/fixtures/init-page.ts'
import { launchBrowser } from '../../support/launch-browser.ts'

declare const tab: InitTab

const fixture = 'tests/e2e/fixtures/init.html'

let browser: Browser
let served: Awaited<ReturnType<typeof servePages>>
beforeAll(async () => {
  browser = await launchBrowser()
  served = await servePages(fixture)
})
afterAll(async () => {
  await browser.close()
  await served.close()
})
afterEach(async () => {
  for (const context of browser.contexts()) await context.close()
})

/** Two tabs of two contexts in one group, whose packets take `latencyMs` longer. */
async function joinTwo(latencyMs: number, search = ''): Promise<Page[]> {
  const url = `http://127.0.0.1:${served.port}/${fixture}${search}`
  const initMethod = newRoomUrl(url)
  const pages = await Promise.all(
    [0, 1].map(async (rank) => {
      const context = await browser.newContext()
      await context.grantPermissions(iceWithoutRoutePermissions)
      const page = await context.newPage()
      const devtools = await context.newCDPSession(page)
      await devtools.send('Network.enable')
      await page.goto(url)
      await page.waitForFunction(() => 'tab' in globalThis)
      if (latencyMs > 0) {
        await devtools.send('Network.emulateNetworkConditions', {
          offline: false,
          latency: latencyMs,
          downloadThroughput: -1,
          uploadThroughput: -1,
        })
      }
      await page.evaluate((options) => tab.begin(options), {
        backend: 'webrtc',
        initMethod,
        rank,
        worldSize: 2,
      } as const)
      return page
    }),
  )
  await Promise.all(pages.map((page) => page.evaluate(() => tab.joined())))
  return pages
}

const sizeBytes = 2 ** 20

it.each([
  ['a long way has four lanes, measured', '', 4],
  ['as many as the switch says', '?lanes=1', 1],
] as const)('%s, and all carry', async (_, search, count) => {
  const pages = await joinTwo(4, search)
  const tookMs = await Promise.all(
    pages.map((page) => page.evaluate((size) => tab.addUp(size, 2), sizeBytes)),
  )
  const sent = await Promise.all(pages.map((page) => page.evaluate(() => tab.sentBytes())))
  for (const bytes of sent) {
    expect(bytes).toHaveLength(count)
    for (const one of bytes) expect(one).toBeGreaterThan((0.3 * 2 * sizeBytes) / count)
  }
  console.log(`${count} lanes over 16 ms: ${(sizeBytes / 1000 / tookMs[0]!).toFixed(1)} MB/s`)
  await Promise.all(pages.map((page) => page.evaluate(() => tab.destroy())))
  for (const page of pages) expect((await page.evaluate(() => tab.left())).open).toBe(0)
})

it('a lane that breaks ends the group on both sides, by name', async () => {
  const pages = await joinTwo(0, '?lanes=3')
  await Promise.all(pages.map((page) => page.evaluate((size) => tab.addUp(size, 1), sizeBytes)))
  expect(await pages[0]!.evaluate(() => tab.breakConnection(1))).toBe(3)
  const failures = await Promise.all(pages.map((page) => page.evaluate(() => tab.failure())))
  expect(failures[0]).toMatch(/lost rank 1/)
  expect(failures[1]).toMatch(/lost rank 0/)
  await Promise.all(pages.map((page) => page.evaluate(() => tab.destroy())))
  for (const page of pages) expect((await page.evaluate(() => tab.left())).open).toBe(0)
})
