import type { Browser, BrowserContext, Page } from 'playwright'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { iceWithoutRoutePermissions } from '../../../node/chromium.ts'
import { servePages } from '../../../node/own-pages.ts'
import type { Served } from '../../../node/serve.ts'
import type { InitProcessGroupOptions } from '../../../src/entries/distributed.ts'
import { newRoomUrl } from '../../../src/peer/room/room-url.ts'
import type { CellsTab } from '../../e2e/fixtures/cells-page.ts'
import {
  type CellBackend,
  cellBackends,
  cells,
  cellsInTabs,
} from '../../support/collective-cells.ts'
import { launchBrowser } from '../../support/launch-browser.ts'

// The columns of docs/reference/backends.md that need tabs, a rank in each: data channels between them, ports of one browser, and the relay.

declare global {
  var cellsTab: CellsTab
}

const fixture = 'tests/e2e/fixtures/cells.html'

let served: Served
let browser: Browser
let context: BrowserContext
let pages: Page[]

beforeAll(async () => {
  served = await servePages(fixture)
  browser = await launchBrowser()
  context = await browser.newContext()
  await context.grantPermissions(iceWithoutRoutePermissions)
  pages = await Promise.all(
    Array.from({ length: 9 }, async () => {
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
})

const inTabs = (['webrtc', 'broadcast', 'relay'] as const satisfies CellBackend[]).flatMap(
  (backend) => cellBackends[backend].map((size) => [backend, size] as const),
)

test.each(inTabs)(
  '%s: every function in %d tabs gives what plain loops give',
  async (backend, size) => {
    const set = process.env.TABRING_CELLS === 'pairs' ? 'pairs' : cellsInTabs(size)
    const initMethod =
      backend === 'broadcast' ? `broadcast:cells-${size}` : newRoomUrl(served.localUrl)
    const received = await Promise.all(
      pages.slice(0, size).map((page, rank) => {
        const options: InitProcessGroupOptions = { backend, initMethod, rank, worldSize: size }
        return page.evaluate(([given, cellSet]) => globalThis.cellsTab.run(given, cellSet), [
          options,
          set,
        ] as const)
      }),
    )
    const kind = backend === 'broadcast' ? 'port' : backend
    for (const { done, kinds } of received) {
      expect(done).toEqual(cells)
      expect(kinds).toEqual(Array.from({ length: size - 1 }, () => kind))
    }
  },
)
