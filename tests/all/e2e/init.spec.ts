import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Browser, BrowserContext, Page } from 'playwright'
import sirv from 'sirv'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { iceWithoutRoutePermissions } from '../../../node/chromium.ts'
import { buildPages } from '../../../node/own-pages.ts'
import { type Served, serve } from '../../../node/serve.ts'
import type { InitProcessGroupOptions } from '../../../src/entries/distributed.ts'
import { newRoomUrl } from '../../../src/peer/room/room-url.ts'
import type { InitTab } from '../../e2e/fixtures/init-page.ts'
import { isRight, type Report } from '../../e2e/fixtures/init-rank.ts'
import { launchBrowser } from '../../support/launch-browser.ts'
import { withoutWebRtc } from '../../support/rank-tabs.ts'

declare global {
  var tab: InitTab
}

const fixture = 'tests/e2e/fixtures/init.html'

let root: string
let remove: () => Promise<void>
/** Pages and signaling. */
let served: Served
/** Pages alone: a server that answers nothing else. */
let files: Server
let filesUrl: string
let browser: Browser
const contexts: BrowserContext[] = []

beforeAll(async () => {
  ;({ root, remove } = await buildPages(fixture))
  served = await serve({ root, port: 0 })
  files = createServer(sirv(root))
  files.listen(0, '127.0.0.1')
  await once(files, 'listening')
  filesUrl = `http://127.0.0.1:${(files.address() as AddressInfo).port}/${fixture}`
  browser = await launchBrowser()
})
afterAll(async () => {
  await browser.close()
  await served.close()
  files.closeAllConnections()
  files.close()
  await remove()
})
afterEach(async () => {
  for (const context of contexts.splice(0)) await context.close()
})

async function openContext(): Promise<BrowserContext> {
  const context = await browser.newContext()
  await context.grantPermissions(iceWithoutRoutePermissions)
  contexts.push(context)
  return context
}

async function openTab(context: BrowserContext, url: string): Promise<Page> {
  const page = await context.newPage()
  await page.goto(url)
  await page.waitForFunction(() => globalThis.tab !== undefined)
  return page
}

const begin = (page: Page, options: InitProcessGroupOptions) =>
  page.evaluate((given) => globalThis.tab.begin(given), options)
const joined = (pages: Page[]): Promise<Report[]> =>
  Promise.all(pages.map((page) => page.evaluate(() => globalThis.tab.joined())))
const destroy = (pages: Page[]) =>
  Promise.all(pages.map((page) => page.evaluate(() => globalThis.tab.destroy())))
const left = (page: Page) => page.evaluate(() => globalThis.tab.left())

/** Expects that every rank has the results of plain loops, and links to all others of `kind`. */
function expectGroup(all: Report[], kind: string): void {
  expect(all.map(({ rank }) => rank).sort()).toEqual([...all.keys()])
  for (const received of all) {
    expect(received.worldSize).toBe(all.length)
    const others = [...all.keys()].filter((rank) => rank !== received.rank)
    expect(received.links.sort()).toEqual(others.map((rank) => [rank, kind]))
    expect(received.received).toHaveLength(others.length)
    expect(isRight(received)).toBe(true)
  }
}

async function crash(page: Page): Promise<void> {
  const crashed = page.waitForEvent('crash')
  await page.goto('chrome://crash').catch(() => undefined) // never answers
  await crashed
}

describe('over WebRTC, through a signaling server', () => {
  it('3 tabs that share nothing but the network, five times', async () => {
    const url = `${served.localUrl}${fixture}`
    const pages = await Promise.all([0, 1, 2].map(async () => openTab(await openContext(), url)))
    const initMethod = newRoomUrl(url)
    for (let cycle = 0; cycle < 5; cycle++) {
      for (const [rank, page] of pages.entries())
        await begin(page, { backend: 'webrtc', initMethod, rank, worldSize: 3 })
      expectGroup(await joined(pages), 'webrtc')
      await destroy(pages)
    }
    for (const page of pages) {
      const { made, open, locks } = await left(page)
      expect(made).toBeGreaterThanOrEqual(10)
      expect({ open, locks }).toEqual({ open: 0, locks: [] })
    }
  })

  it('3 tabs on two machines that know all from their address, as launchers write it', async () => {
    const url = new URL(`${served.localUrl}${fixture}`)
    const { hash } = new URL(newRoomUrl(url))
    const address = `WORLD_SIZE=3&MASTER_ADDR=${url.hostname}&MASTER_PORT=${url.port}${hash}`
    const pages = await Promise.all(
      [0, 1, 1].map(async (machine, rank) =>
        openTab(await openContext(), `${url}?RANK=${rank}&GROUP_RANK=${machine}&${address}`),
      ),
    )
    for (const page of pages) await begin(page, { initMethod: 'env://' })
    const all = await joined(pages)
    expect(all.map(({ rank }) => rank)).toEqual([0, 1, 2])
    for (const { machines } of all) expect(machines).toEqual([0, 1, 1])
    expectGroup(all, 'webrtc')
    await destroy(pages)
  })

  it('every rank reports a tab without a network route, and a second try can succeed', async () => {
    const url = `${served.localUrl}${fixture}`
    const pages = await Promise.all([0, 1, 2].map(async () => openTab(await openContext(), url)))
    const options = { backend: 'webrtc', initMethod: newRoomUrl(url), worldSize: 3 } as const
    for (const [rank, page] of pages.entries()) {
      // No relay is configured, so no candidate is found: as on a machine without a network.
      const rtc: RTCConfiguration = rank === 1 ? { iceTransportPolicy: 'relay' } : {}
      await begin(page, { ...options, rank, rtc })
    }
    await expect(joined([pages[1]])).rejects.toThrow(/link to rank [02] .* no network route/)
    for (const page of [pages[0], pages[2]])
      await expect(joined([page])).rejects.toThrow(/rank 1 .* gave up: link to .* no network route/)
    for (const page of pages) expect(await left(page)).toMatchObject({ open: 0 })
    for (const [rank, page] of pages.entries()) await begin(page, { ...options, rank })
    expectGroup(await joined(pages), 'webrtc')
  })

  it('names who is missing, on all that wait', async () => {
    const url = `${served.localUrl}${fixture}`
    const pages = await Promise.all([0, 2].map(async () => openTab(await openContext(), url)))
    const initMethod = newRoomUrl(url)
    for (const [at, page] of pages.entries())
      await begin(page, { initMethod, rank: 2 * at, worldSize: 3, timeoutMs: 1000 })
    for (const page of pages)
      await expect(joined([page])).rejects.toThrow(/waited 1000 ms for 3 ranks: missing rank 1\./)
  })
})

describe('through the relay of a signaling server', () => {
  let relaying: Served
  beforeAll(async () => {
    relaying = await serve({ root, port: 0, signaling: { relay: true } })
  })
  afterAll(() => relaying.close())
  const addressOf = () => `${relaying.localUrl}${fixture}`

  it('2 tabs whose WebRTC is taken away, where the option asks for it', async () => {
    const pages = await Promise.all(
      [0, 1].map(async () => {
        const context = await openContext()
        await context.addInitScript(withoutWebRtc)
        return openTab(context, addressOf())
      }),
    )
    const initMethod = newRoomUrl(addressOf())
    for (const [rank, page] of pages.entries())
      await begin(page, { initMethod, rank, worldSize: 2 })
    for (const page of pages)
      await expect(joined([page])).rejects.toThrow(/nor both have WebRTC.*relay: "fallback"/)
    for (const [rank, page] of pages.entries())
      await begin(page, { initMethod, relay: 'fallback', rank, worldSize: 2 })
    expectGroup(await joined(pages), 'relay')
    await destroy(pages)
  })

  it('3 tabs of which one has no network route: its links alone', async () => {
    const pages = await Promise.all(
      [0, 1, 2].map(async () => openTab(await openContext(), addressOf())),
    )
    const options = {
      initMethod: newRoomUrl(addressOf()),
      relay: 'fallback',
      worldSize: 3,
    } as const
    for (const [rank, page] of pages.entries()) {
      // No TURN server is configured, so no candidate is found: as where a network blocks WebRTC.
      const rtc: RTCConfiguration = rank === 1 ? { iceTransportPolicy: 'relay' } : {}
      await begin(page, { ...options, rank, rtc })
    }
    const all = await joined(pages)
    for (const received of all) expect(isRight(received)).toBe(true)
    expect(all.map(({ links }) => links.sort())).toEqual([
      [
        [1, 'relay'],
        [2, 'webrtc'],
      ],
      [
        [0, 'relay'],
        [2, 'relay'],
      ],
      [
        [0, 'webrtc'],
        [1, 'relay'],
      ],
    ])
    // What was given up is closed already.
    expect(await left(pages[1])).toMatchObject({ open: 0 })
    await destroy(pages)
  })

  it('2 workers to which no page is lent', async () => {
    const pages = await Promise.all(
      [0, 1].map(async () => openTab(await openContext(), addressOf())),
    )
    const options = { backend: 'relay', initMethod: newRoomUrl(addressOf()), worldSize: 2 } as const
    const both = await Promise.all(
      pages.map((page, rank) =>
        page.evaluate((given) => globalThis.tab.workers([given], false), { ...options, rank }),
      ),
    )
    expectGroup(both.flat(), 'relay')
  })
})

describe('over ports, without a server', () => {
  it('4 tabs of one browser, in a room that a crash left dirty', async () => {
    const context = await openContext()
    const options = { backend: 'broadcast', initMethod: 'broadcast:four', worldSize: 4 } as const
    const old = await openTab(context, filesUrl)
    const pages = await Promise.all([0, 1, 2].map(() => openTab(context, filesUrl)))
    // The first three are in the room, the fourth dies there, and its rank comes back in another tab.
    await begin(pages[0], { ...options, rank: 0 })
    await begin(pages[1], { ...options, rank: 1 })
    await begin(old, { ...options, rank: 3 })
    await old.evaluate(() => globalThis.tab.sees('four', 'group/default/0/rank/3'))
    await crash(old)
    const again = await openTab(context, filesUrl)
    await begin(pages[2], { ...options, rank: 2 })
    await begin(again, { ...options, rank: 3 })
    const all = [...pages, again]
    expectGroup(await joined(all), 'port')
    // A lost tab is reported at once, by its lock: long before its silence would be.
    const failures = pages.map((page) => page.evaluate(() => globalThis.tab.failure()))
    await crash(again)
    const crashedAt = performance.now()
    for (const failure of failures)
      expect(await failure).toMatch(/lost rank 3: its tab or worker closed/)
    expect(performance.now() - crashedAt).toBeLessThan(3000)
    await destroy(pages)
    for (const page of pages) expect((await left(page)).locks).toEqual([])
    // Two tabs that had the room's store open have crashed: it goes with the others' end all the same.
    const keys = () => pages[0].evaluate(() => globalThis.tab.keysOf('four'))
    await expect.poll(keys, { timeout: 5000 }).toBe(0)
  })

  it('2 tabs by a file of the origin, twice, the second time after a crash', async () => {
    const context = await openContext()
    const options = { initMethod: 'opfs:two', worldSize: 2 } as const
    const pages = await Promise.all([0, 1].map(() => openTab(context, filesUrl)))
    // Ranks by the order of coming.
    for (const page of pages) await begin(page, options)
    expectGroup(await joined(pages), 'port')
    await destroy(pages)
    for (const page of pages) expect((await left(page)).locks).toEqual([])
    const old = await openTab(context, filesUrl)
    await begin(old, { ...options, rank: 1 })
    await old.waitForFunction(async () => (await globalThis.tab.fileSize('two')) > 100)
    await crash(old)
    for (const [rank, page] of pages.entries()) await begin(page, { ...options, rank })
    expectGroup(await joined(pages), 'port')
    await destroy(pages)
  })
})

describe('in workers whose page is lent to them', () => {
  it('3 of one page by its own channels, 2 of two pages by WebRTC', async () => {
    const page = await openTab(await openContext(), filesUrl)
    const options = { backend: 'local', initMethod: 'broadcast:workers', worldSize: 3 } as const
    const received = await page.evaluate(
      (all) => globalThis.tab.workers(all),
      [0, 1, 2].map((rank) => ({ ...options, rank })),
    )
    expectGroup(received, 'port')
    expect((await left(page)).locks).toEqual([])

    // The others learn at once of a worker that ends without a goodbye: its page frees what it held for it.
    const stays = [0, 1, 2].map((rank) => ({ ...options, rank }))
    await page.evaluate((all) => globalThis.tab.stay(all), stays)
    const endedAt = performance.now()
    const errors = await page.evaluate(() => globalThis.tab.terminate(1))
    expect(performance.now() - endedAt).toBeLessThan(3000)
    for (const error of errors) expect(error).toMatch(/rank 1[: ]/)
    await expect.poll(async () => (await left(page)).locks).toEqual([])

    const url = `${served.localUrl}${fixture}`
    const pages = await Promise.all([0, 1].map(async () => openTab(await openContext(), url)))
    const initMethod = newRoomUrl(url)
    const both = await Promise.all(
      pages.map((one, rank) =>
        one.evaluate((given) => globalThis.tab.workers([given]), {
          initMethod,
          rank,
          worldSize: 2,
        }),
      ),
    )
    expectGroup(both.flat(), 'webrtc')
    for (const one of pages) expect(await left(one)).toMatchObject({ made: 2, open: 0 })
  })
})
