import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Browser, BrowserContext, Page } from 'playwright'
import { createServer } from 'vite'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { iceWithoutRoutePermissions } from '../../../node/chromium.ts'
import { servePages } from '../../../node/own-pages.ts'
import { tabring } from '../../../node/vite-plugin.ts'
import type { Assignment } from '../../../src/peer/room/messages.ts'
import { newRoomLink } from '../../../src/peer/room/secret.ts'
import type { JoinOptions, Tab, TabEvent } from '../../e2e/fixtures/connect-page.ts'
import { launchBrowser } from '../../support/launch-browser.ts'
import { repository } from '../../support/repository.ts'

const fixture = 'tests/e2e/fixtures/connect.html'

declare global {
  interface Window {
    tab: Tab
  }
}

/** The fixture page on a free port, served by `kind`. */
async function start(kind: string): Promise<{ url: string; stop: () => Promise<void> }> {
  if (kind === 'dev server') {
    const cacheDir = await mkdtemp(join(tmpdir(), 'tabring-vite-'))
    const server = await createServer({
      root: repository,
      configFile: false,
      logLevel: 'error',
      // Not the folder that another test's server may be writing.
      cacheDir,
      plugins: [tabring()],
      server: { port: 0, host: '127.0.0.1', watch: null },
      optimizeDeps: { entries: [fixture] },
    })
    await server.listen()
    const address = server.httpServer?.address()
    if (!address || typeof address === 'string') throw new Error('no port')
    return {
      url: `http://127.0.0.1:${address.port}/${fixture}`,
      stop: async () => {
        await server.close()
        await rm(cacheDir, { recursive: true, force: true })
      },
    }
  }
  const served = await servePages(fixture)
  return { url: `http://127.0.0.1:${served.port}/${fixture}`, stop: () => served.close() }
}

let browser: Browser
let contexts: BrowserContext[] = []
beforeAll(async () => {
  browser = await launchBrowser()
})
afterAll(() => browser.close())

async function openContext(): Promise<BrowserContext> {
  const context = await browser.newContext()
  await context.grantPermissions(iceWithoutRoutePermissions)
  contexts.push(context)
  return context
}

/** Waits in the page for an event; at most 40 s, then it says what came instead. */
async function event<T = unknown>(
  page: Page,
  what: TabEvent['what'],
  ...parts: string[]
): Promise<{ atMs: number; value: T }> {
  const found = await page.evaluate(
    ([name, ...rest]) => window.tab.wait(name as TabEvent['what'], rest, 40_000),
    [what, ...parts],
  )
  return found as unknown as { atMs: number; value: T }
}

/** Opens `count` tabs in one room: each in a separate context (nothing shared but the network), or all in one. */
async function room(
  url: string,
  count: number,
  kind: 'webrtc' | 'port',
  options: (rank: number) => Partial<JoinOptions> = () => ({}),
): Promise<Page[]> {
  const link = newRoomLink()
  const shared = kind === 'port' ? await openContext() : null
  const pages: Page[] = []
  for (let rank = 0; rank < count; rank++) {
    const page = await (shared ?? (await openContext())).newPage()
    page.on('pageerror', (error) => console.error(`tab ${rank}: ${error.message}`))
    await page.goto(url)
    await page.waitForFunction(() => window.tab !== undefined)
    const join: JoinOptions = { link, name: `tab ${rank}`, transport: 'auto', ...options(rank) }
    await page.evaluate((given) => window.tab.join(given), join)
    pages.push(page)
  }
  await Promise.all(pages.map((page) => event(page, 'lobby', `"tab ${count - 1}"`)))
  return pages
}

async function startRun(pages: Page[]): Promise<Assignment[]> {
  await pages[0].evaluate(() => window.tab.start({ steps: 1 }))
  return Promise.all(pages.map(async (page) => (await event<Assignment>(page, 'assign')).value))
}

describe.each(['dev server', 'built server'])('on the %s', (server) => {
  let url: string
  let stop: () => Promise<void>

  beforeAll(async () => {
    ;({ url, stop } = await start(server))
  })
  afterAll(() => stop())
  afterEach(async () => {
    for (const context of contexts) await context.close()
    contexts = []
  })

  const counts = server === 'dev server' ? [3] : [2, 5]
  const cases = (['webrtc', 'port'] as const).flatMap((kind) =>
    counts.map((count) => ({ kind, count })),
  )
  it.each(cases)(
    '$count tabs joined by $kind echo bytes in their workers',
    async ({ kind, count }) => {
      const pages = await room(url, count, kind)
      const assignments = await startRun(pages)
      expect(assignments.map((one) => one.rank)).toEqual([...pages.keys()])
      expect(assignments.flatMap((one) => one.links).map((link) => link.kind)).toEqual(
        Array(count * (count - 1)).fill(kind),
      )
      const starts = await Promise.all(pages.map((page) => event(page, 'start', '"steps":1')))
      const formedMs = Math.max(
        ...(await Promise.all(
          pages.map(async (page, rank) => {
            const begun = (await event(page, 'assign')).atMs
            return starts[rank].atMs - begun
          }),
        )),
      )

      const messages = 8
      const sizeBytes = 64 * 1024
      await Promise.all(
        pages.map(async (page, rank) => {
          for (const { peerRank } of assignments[rank].links) {
            await page.evaluate(
              ([peer, howMany, size]) => window.tab.echo(peer, howMany, size),
              [peerRank, messages, sizeBytes],
            )
            const echo = await event(page, 'worker', `"echoed":${peerRank},`)
            expect(echo.value).toMatchObject({ bytes: messages * sizeBytes, isIntact: true })
          }
        }),
      )
      // Everyone has sent, and sent back, the same.
      const perLink = 2 * messages * sizeBytes
      for (const [rank, page] of pages.entries()) {
        const links = await page.evaluate(() => window.tab.stats())
        expect(links).toHaveLength(assignments[rank].links.length)
        if (kind === 'port') {
          expect(links.every((link) => link.stats === null)).toBe(true)
          continue
        }
        for (const { stats } of links) {
          expect(stats).toMatchObject({ bytesSent: perLink, bytesReceived: perLink })
          expect(stats?.pair).toMatch(/^(host|prflx)-(host|prflx)$/)
        }
      }
      console.log(`${server}: ${count} tabs by ${kind}: assign to start ${formedMs.toFixed(0)} ms`)

      await Promise.all(pages.map((page) => page.evaluate(() => window.tab.done(1))))
      await Promise.all(pages.map((page) => event(page, 'finished')))
    },
  )

  it.each(['webrtc', 'port'] as const)(
    'the other tabs receive the abort within 1 s when a tab closes (%s)',
    async (kind) => {
      const pages = await room(url, 3, kind)
      await startRun(pages)
      await Promise.all(pages.map((page) => event(page, 'start')))
      const closedAtMs = Date.now()
      await pages[1].close()
      for (const rank of [0, 2]) {
        const abort = await event<{ ranks: number[]; text: string }>(pages[rank], 'abort')
        expect(abort.value).toMatchObject({ ranks: [1] })
        const times = [abort]
        // A port does not report its end to its worker; a channel does.
        if (kind === 'webrtc') times.push(await event(pages[rank], 'worker', '"ended":1'))
        const tookMs = times.map(({ atMs }) => Math.round(atMs - closedAtMs))
        console.log(
          `${server}: ${kind}: rank ${rank} told after ${tookMs.join(', its link after ')} ms`,
        )
        expect(Math.max(...tookMs)).toBeLessThan(1000)
      }
      // The ones that are left form a new ring.
      const again = await event<{ state: string }>(pages[0], 'lobby', '"state":"failed"')
      expect(again.value.state).toBe('failed')
      await pages[0].evaluate(() => window.tab.start({ steps: 2 }))
      for (const page of [pages[0], pages[2]]) await event(page, 'start', '"epoch":2')
    },
  )
})

describe('when links do not form', () => {
  let url: string
  let stop: () => Promise<void>
  beforeAll(async () => {
    ;({ url, stop } = await start('built server'))
  })
  afterAll(() => stop())
  afterEach(async () => {
    for (const context of contexts) await context.close()
    contexts = []
  })

  it('every rank reports a tab without a network route', async () => {
    const pages = await room(url, 3, 'webrtc', (rank) =>
      // No relay is configured, so no candidate is found: as on a machine without a network.
      rank === 1 ? { rtc: { iceTransportPolicy: 'relay' } } : {},
    )
    await startRun(pages)
    const own = await event<string>(pages[1], 'unreachable')
    expect(own.value).toMatch(/^link to rank [02] \(tab [02]\): no connection: no network route/)
    for (const rank of [0, 2]) {
      const { value } = await event<{ text: string }>(pages[rank], 'abort')
      expect(value.text).toContain('rank 1 (tab 1) lost its link to rank')
      expect(value.text).toContain('no network route')
    }
  })

  it('a second attempt connects on new channels what the first could not', async () => {
    const pages = await room(url, 2, 'webrtc', (rank) => ({ isMuteAtFirst: rank === 0 }))
    await startRun(pages)
    await Promise.all(pages.map((page) => event(page, 'start')))
    await event(pages[0], 'worker', '"added":1,"wasThere":true')
    await pages[1].evaluate(() => window.tab.echo(0, 4, 1024))
    const echo = await event(pages[1], 'worker', '"echoed":0,')
    expect(echo.value).toMatchObject({ isIntact: true })
  })

  it('a crashed tab of the same browser ends the run at once', async () => {
    const pages = await room(url, 2, 'port')
    await startRun(pages)
    await Promise.all(pages.map((page) => event(page, 'start')))
    const crashed = pages[1].waitForEvent('crash')
    const crashedAtMs = Date.now()
    await pages[1].goto('chrome://crash').catch(() => undefined) // never answers
    await crashed
    const abort = await event<{ text: string }>(pages[0], 'abort')
    expect(abort.value.text).toMatch(/its tab (or worker )?closed/)
    console.log(`port: crash told after ${Math.round(abort.atMs - crashedAtMs)} ms`)
    expect(abort.atMs - crashedAtMs).toBeLessThan(5000)
  })

  it('a crashed tab leaves the run to the ring: detached, not aborted', async () => {
    const pages = await room(url, 2, 'webrtc')
    await startRun(pages)
    await Promise.all(pages.map((page) => event(page, 'start')))
    const crashed = pages[1].waitForEvent('crash')
    await pages[1].goto('chrome://crash').catch(() => undefined) // never answers
    await crashed
    await event(pages[0], 'lobby', '"state":"running"', '"attached":false')
    const events = await pages[0].evaluate(() => window.tab.events().map((one) => one.what))
    expect(events).not.toContain('abort')
  })

  it('the transport "port" across browsers is refused at the start', async () => {
    const pages = await room(url, 2, 'webrtc', () => ({ transport: 'port' }))
    await pages[0].evaluate(() => window.tab.start(null))
    const refused = await event<Error>(pages[0], 'refused')
    expect(refused.value.message).toContain('ranks 0 and 1 do not share a browser')
  })
})
