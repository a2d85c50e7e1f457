import type { Browser, BrowserContext, Page } from 'playwright'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { iceWithoutRoutePermissions } from '../../node/chromium.ts'
import { buildPages } from '../../node/own-pages.ts'
import { type Served, serve } from '../../node/serve.ts'
import type { InitProcessGroupOptions } from '../../src/index.ts'
import { newRoomUrl } from '../../src/peer/room-url.ts'
import { type CellBackend, cellBackends, cells } from '../support/collective-cells.ts'
import { launchBrowser } from '../support/launch-browser.ts'
import type { CellsTab } from './fixtures/cells-page.ts'

// The rows of docs/backends.md that need tabs: data channels between them, and ports of one browser.

declare global {
  var cellsTab: CellsTab
}

const fixture = 'tests/e2e/fixtures/cells.html'

let remove: () => Promise<void>
let served: Served
let browser: Browser
let context: BrowserContext
let pages: Page[]

beforeAll(async () => {
  const built = await buildPages(fixture)
  remove = built.remove
  served = await serve({ root: built.root, port: 0 })
  browser = await launchBrowser()
  context = await browser.newContext()
  await context.grantPermissions(iceWithoutRoutePermissions)
  pages = await Promise.all(
    [0, 1, 2, 3].map(async () => {
      const page = await context.newPage()
      await page.goto(`${served.localUrl}${fixture}`)
      await page.waitForFunction(() => globalThis.cellsTab !== undefined)
      return page
    }),
  )
})
afterAll(async () => {
  await browser.close()
  await served.close()
  await remove()
})

const inTabs = (['webrtc', 'broadcast'] as const satisfies CellBackend[]).flatMap((backend) =>
  cellBackends[backend].map((size) => [backend, size] as const),
)

test.each(inTabs)(
  '%s: every function in %d tabs gives what plain loops give',
  async (backend, size) => {
    const initMethod =
      backend === 'webrtc' ? newRoomUrl(served.localUrl) : `broadcast:cells-${backend}-${size}`
    const told = await Promise.all(
      pages.slice(0, size).map((page, rank) => {
        const options: InitProcessGroupOptions = { backend, initMethod, rank, worldSize: size }
        return page.evaluate((given) => globalThis.cellsTab.run(given), options)
      }),
    )
    const kind = backend === 'webrtc' ? 'webrtc' : 'port'
    for (const { done, kinds } of told) {
      expect(done).toEqual(cells)
      expect(kinds).toEqual(Array.from({ length: size - 1 }, () => kind))
    }
  },
)
