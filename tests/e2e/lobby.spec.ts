import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import type { Browser, BrowserContext, Page } from 'playwright'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { ensureBuilt } from '../../node/build.ts'
import { iceWithoutRoutePermissions } from '../../node/chromium.ts'
import { type Served, serve } from '../../node/serve.ts'
import { launchBrowser } from '../support/launch-browser.ts'

/** Rooms as a class makes them: many tabs, several ranks in one, one reloaded, one closed. */

const pictures = process.env.TABRING_PICTURES
/** From the last page's load until every tab shows everyone. units: ms. */
const joinBoundMs = 5_000

let served: Served
let browser: Browser
let context: BrowserContext
let complaints: string[] = []

beforeAll(async () => {
  if (pictures) mkdirSync(pictures, { recursive: true })
  served = await serve({ root: await ensureBuilt(), port: 0 })
  browser = await launchBrowser()
})
afterAll(async () => {
  await browser?.close()
  await served?.close()
})
afterEach(async () => {
  await context.close()
  const found = complaints
  complaints = []
  expect(found).toEqual([])
})

async function openContext(): Promise<void> {
  context = await browser.newContext({ viewport: { width: 1400, height: 900 } })
  await context.grantPermissions(iceWithoutRoutePermissions)
}

async function openTab(url: string): Promise<Page> {
  const page = await context.newPage()
  page.on('pageerror', (error) => complaints.push(error.message))
  page.on('console', (message) => {
    if (message.type() === 'error') complaints.push(message.text())
  })
  await page.goto(url)
  return page
}

const members = (page: Page) => page.getByRole('list', { name: 'Members' }).getByRole('listitem')
const start = (page: Page) => page.getByRole('button', { name: 'Start', exact: true })
const hashOf = (page: Page) => page.getByTestId('param-hash').textContent()

async function see(page: Page, title: string | RegExp, timeout = 30_000): Promise<void> {
  const status = page.locator('.status h2 [role=status]')
  await status.filter({ hasText: title }).waitFor({ timeout })
}

const seeMembers = (page: Page, count: number) =>
  page.waitForFunction(
    (expected) => document.querySelectorAll('.members .member').length === expected,
    count,
  )

const picture = async (page: Page, name: string) => {
  if (pictures) await page.screenshot({ path: join(pictures, `${name}.png`), fullPage: true })
}

describe('a room of a class', { timeout: 180_000 }, () => {
  it('8 tabs join within 5 s, tell how fast they are, and train; one is reloaded, one closed', async () => {
    await openContext()
    const maker = await openTab(`${served.localUrl}?demo=playground&steps=20&batchSize=64`)
    await see(maker, 'Alone in the room')
    const link = await maker.locator('#invite').inputValue()
    const pages = [maker]
    for (let tab = 1; tab < 8; tab++) pages.push(await openTab(link))
    const loadedAtMs = performance.now()
    await Promise.all(pages.map((page) => seeMembers(page, 8)))
    const tookMs = performance.now() - loadedAtMs
    console.log(`8 tabs were in one room ${Math.round(tookMs)} ms after the last page's load`)
    expect(tookMs).toBeLessThan(joinBoundMs)

    await maker.bringToFront() // a tab behind another draws a frame a second
    for (const member of await members(maker).all()) {
      await member.getByText('GFLOP/s').waitFor()
      await member.getByText('to the server').waitFor()
    }
    await picture(maker, 'lobby-eight')

    await start(maker).click()
    await Promise.all(pages.map((page) => see(page, 'Finished', 60_000)))
    expect(new Set(await Promise.all(pages.map(hashOf))).size).toBe(1)
    // All are linked to all: 8 links of the ring, and 20 beside it.
    expect(await maker.locator('#ring .edge').count()).toBe(8)
    const chords = await maker
      .locator('#ring .chords')
      .evaluateAll((paths) => paths.map((path) => Number(path.getAttribute('data-links'))))
    expect(chords.reduce((sum, links) => sum + links, 0)).toBe(20)

    const names = () => members(maker).locator('strong').allTextContents()
    const before = await names()
    // Tabs that open beside each other enter in any order.
    const own = await pages[3].getByRole('textbox', { name: 'This tab' }).inputValue()
    await pages[3].reload()
    await see(pages[3], /^Waiting for .+ to start$/)
    // The same name at the end: it is a new member.
    const after = [...before.filter((name) => name !== own), own]
    await expect.poll(names, { timeout: 10_000 }).toEqual(after)
    await Promise.all(pages.map((page) => seeMembers(page, 8)))
    await pages[5].close()
    const rest = pages.filter((page) => page !== pages[5])
    await Promise.all(rest.map((page) => seeMembers(page, 7)))
    await see(maker, 'Finished')
  })

  it('one tab with 3 ranks trains over ports to equal hashes; a worker that ends is told as its rank', async () => {
    await openContext()
    const page = await openTab(`${served.localUrl}?ranks=3&steps=4&batchSize=12`)
    await see(page, 'Alone in the room')
    await seeMembers(page, 3)
    const room = page.locator('#room')
    expect(await room.textContent()).toContain('1 tab, 3 ranks')
    expect(await room.textContent()).toContain('one tab, 3 ranks')
    const own = await members(page).nth(0).locator('strong').textContent()
    expect(await members(page).locator('strong').allTextContents()).toEqual([
      own,
      `${own} · 2`,
      `${own} · 3`,
    ])
    await start(page).click()
    await see(page, 'Finished', 90_000)
    expect(await page.locator('#summary').textContent()).toContain('the same on all 3 ranks')
    expect(await page.locator('#ring').textContent()).toContain('MessagePorts')
    expect(page.workers()).toHaveLength(3)

    await page.getByText('More settings').click()
    await page.getByLabel('Steps', { exact: true }).fill('100000')
    await page.getByRole('button', { name: 'Start again' }).click()
    await see(page, 'Training', 60_000)
    await members(page).nth(0).getByText('to neighbours').waitFor()
    await picture(page, 'three-ranks-training')
    // The second and third worker are of the ranks that the page does not show.
    await page.workers()[2].evaluate(() => self.close())
    await page.locator('.status[data-tone=bad]').waitFor()
    const text = await page.locator('.status').textContent()
    const lost = /· [23]/.exec(text!)![0]
    expect(text).toMatch(/rank [12] \(.+ · [23]\)/)
    expect(text).toContain(`${lost}, a rank of this tab, has left the room`)
    await seeMembers(page, 2)
    await picture(page, 'one-of-three-ranks-lost')
  })

  it('2 tabs with 2 ranks each train together; closing one takes both of its ranks away', async () => {
    await openContext()
    const maker = await openTab(`${served.localUrl}?ranks=2&steps=4&batchSize=12`)
    await see(maker, 'Alone in the room')
    const link = new URL(await maker.locator('#invite').inputValue())
    expect(link.search, 'how many ranks a tab has is its own').toBe('')
    link.search = '?ranks=2'
    const second = await openTab(link.href)
    await Promise.all([maker, second].map((page) => seeMembers(page, 4)))
    expect(await maker.locator('#room').textContent()).toContain('2 tabs, 4 ranks')
    await see(maker, 'Ready with 4 ranks')
    await maker.bringToFront()
    await start(maker).click()
    await Promise.all([maker, second].map((page) => see(page, 'Finished', 90_000)))
    expect(await hashOf(second)).toBe(await hashOf(maker))
    expect(await maker.locator('#summary').textContent()).toContain('the same on all 4 ranks')
    await second.close()
    await seeMembers(maker, 2)
  })
})
