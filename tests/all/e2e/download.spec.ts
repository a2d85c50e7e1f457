import { createHash, randomBytes } from 'node:crypto'
import type { Browser, BrowserContext, Page } from 'playwright'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { servePages } from '../../../node/own-pages.ts'
import type { Served } from '../../../node/serve.ts'
import type { DownloadProgress } from '../../../src/data/download.ts'
import { ForeignServer } from '../../support/foreign-server.ts'
import { launchBrowser } from '../../support/launch-browser.ts'

/** Downloads from a server of another origin, in a browser: what CORS lets through decides whether the rest may come alone. */

const fixture = 'tests/e2e/fixtures/download.html'
const contents = randomBytes(6 * 2 ** 20)
const sha256 = createHash('sha256').update(contents).digest('hex')
const whole = { sizeBytes: contents.length, sha256 }
const halt = 4_500_000

let page: Served
let browser: Browser
beforeAll(async () => {
  page = await servePages(fixture)
  browser = await launchBrowser()
})
afterAll(async () => {
  await browser.close()
  await page.close()
})

let server: ForeignServer
let visitor: BrowserContext
/** Progress events of the page, of all its downloads. */
let progress: DownloadProgress[]
beforeEach(async () => {
  server = new ForeignServer(contents)
  await server.listen()
  visitor = await browser.newContext()
  progress = []
  await visitor.exposeFunction('told', (now: DownloadProgress) => {
    progress.push(now)
    // All that the server gave has arrived: nothing is lost with the connection.
    if (now.receivedBytes === halt) server.breakOff()
  })
})
afterEach(async () => {
  await visitor.close()
  await server.close()
})

async function visit(): Promise<Page> {
  const tab = await visitor.newPage()
  await tab.goto(new URL(fixture, page.localUrl).href)
  await tab.waitForFunction('window.fetchFile')
  return tab
}
const fetchFile = (tab: Page, options: { retries?: number; sha256?: string } = { sha256 }) =>
  tab.evaluate(([url, given]) => window.fetchFile(url, given), [server.url, options] as const)

const rest = `bytes=${halt}-`
const preflight = expect.stringMatching(/^OPTIONS .*if-range/)
const resumed = () => Math.max(...progress.map(({ resumedBytes }) => resumedBytes))

test('the page and the server are of two origins', () => {
  expect(new URL(server.url).origin).not.toBe(new URL(page.localUrl).origin)
})

test('a server that allows If-Range and shows Content-Range is asked for the rest alone', async () => {
  server.cors = { allows: ['If-Range', 'Range'], exposes: ['Content-Range', 'ETag'] }
  server.haltAfter = halt
  expect(await fetchFile(await visit())).toEqual(whole)
  expect(server.asked).toEqual(['whole', preflight, rest])
  expect(resumed()).toBe(halt)
})

test('a later visit continues where an earlier one was cut off', async () => {
  server.cors = { allows: ['If-Range', 'Range'], exposes: ['Content-Range', 'ETag'] }
  server.haltAfter = halt
  const first = await visit()
  expect(await fetchFile(first, { retries: 0, sha256 })).toMatchObject({ code: 'data.interrupted' })
  await first.close()
  const second = await visit()
  expect(await fetchFile(second)).toEqual(whole)
  expect(server.asked).toEqual(['whole', preflight, rest])
  expect(resumed()).toBe(halt)
  // It is whole now: nobody is asked.
  expect(await fetchFile(second)).toEqual(whole)
  expect(server.asked).toHaveLength(3)
})

test('a part without a readable Content-Range is not used: the whole file is downloaded again', async () => {
  server.cors = { allows: ['If-Range', 'Range'], exposes: ['ETag'] }
  server.haltAfter = halt
  expect(await fetchFile(await visit())).toEqual(whole)
  expect(server.asked).toEqual(['whole', preflight, rest, 'whole'])
  expect(resumed()).toBe(0)
})

test('the whole file is downloaded again when the browser may not send If-Range', async () => {
  server.cors = { allows: [], exposes: ['Content-Range', 'ETag'] }
  server.haltAfter = halt
  expect(await fetchFile(await visit())).toEqual(whole)
  expect(server.asked).toEqual(['whole', preflight, 'whole'])
  expect(resumed()).toBe(0)
})

test('a server that names no version that pages see is asked for the whole file', async () => {
  server.cors = { allows: ['If-Range', 'Range'], exposes: ['Content-Range'] }
  server.haltAfter = halt
  expect(await fetchFile(await visit())).toEqual(whole)
  expect(server.asked).toEqual(['whole', 'whole'])
})

test('another version of the file is not joined to the part that is there', async () => {
  server.cors = { allows: ['If-Range', 'Range'], exposes: ['Content-Range', 'ETag'] }
  server.haltAfter = halt
  const tab = await visit()
  expect(await fetchFile(tab, { retries: 0 })).toMatchObject({ code: 'data.interrupted' })
  server.tag = '"v2"'
  expect(await fetchFile(tab)).toEqual(whole)
  expect(server.asked).toEqual(['whole', preflight, rest])
  expect(resumed()).toBe(0)
})
