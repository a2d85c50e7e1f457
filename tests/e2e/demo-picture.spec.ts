import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { encode } from 'fast-png'
import type { Browser, Page } from 'playwright'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { ensureBuilt } from '../../node/build.ts'
import { iceWithoutRoutePermissions } from '../../node/chromium.ts'
import { type Served, serve } from '../../node/serve.ts'
import { launchBrowser } from '../support/launch-browser.ts'

/** The picture demo as people use it. Pictures go to the folder that TABRING_PICTURES names, or to test-results/page. */
const pictures =
  process.env.TABRING_PICTURES || join(import.meta.dirname, '..', '..', 'test-results', 'page')

let served: Served
let browser: Browser
const complaints: string[] = []

beforeAll(async () => {
  mkdirSync(pictures, { recursive: true })
  served = await serve({ root: await ensureBuilt(), port: 0 })
  browser = await launchBrowser()
})
afterAll(async () => {
  await browser?.close()
  await served?.close()
})

async function photograph(page: Page, name: string): Promise<void> {
  for (const [width, colorScheme] of [
    [1400, 'light'],
    [1400, 'dark'],
    [375, 'light'],
  ] as const) {
    await page.setViewportSize({ width, height: 900 })
    await page.emulateMedia({ colorScheme })
    const path = join(pictures, `demo-picture-${name}-${width}-${colorScheme}.png`)
    await page.locator('#demo').screenshot({ path })
    const tooWide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)
    expect(tooWide, `${width}`).toBeLessThanOrEqual(0)
  }
  await page.setViewportSize({ width: 1400, height: 900 })
  await page.emulateMedia({ colorScheme: 'light' })
}

/** A red disc on a blue slope, 300 x 150 pixels: scaled down as it is dropped. */
function discPng(): string {
  const [width, height] = [300, 150]
  const data = new Uint8Array(3 * width * height)
  for (let i = 0; i < width * height; i++) {
    const [x, y] = [i % width, Math.floor(i / width)]
    const isDisc = Math.hypot(x - 200, y - 75) < 50
    data.set(isDisc ? [230, 40, 30] : [20, 60, Math.round((255 * x) / width)], 3 * i)
  }
  return Buffer.from(encode({ width, height, data, channels: 3 })).toString('base64')
}

/** Drops a file on the demo, as a person would. */
const drop = (page: Page, base64: string, name: string, type: string) =>
  page.locator('.demo.picture').evaluate(
    (place, file) => {
      const transfer = new DataTransfer()
      const bytes = Uint8Array.from(atob(file.base64), (letter) => letter.charCodeAt(0))
      transfer.items.add(new File([bytes], file.name, { type: file.type }))
      const init = { dataTransfer: transfer, bubbles: true, cancelable: true }
      if (place.dispatchEvent(new DragEvent('drop', init))) throw new Error('the page let it go')
    },
    { base64, name, type },
  )

const see = (page: Page, title: string) =>
  page.locator('.status h2 [role=status]').filter({ hasText: title }).waitFor({ timeout: 90_000 })
const button = (page: Page, name: string) => page.getByRole('button', { name, exact: true })
const decibels = async (page: Page) =>
  Number.parseFloat((await page.locator('.closeness').getAttribute('data-decibels')) || 'NaN')
/** Red, green and blue of the picture of that name, at shares of its width and height. */
const colourAt = (page: Page, title: string, x: number, y: number) =>
  page.getByRole('img', { name: title, exact: true }).evaluate(
    (canvas, [across, down]) => {
      const { width, height } = canvas as HTMLCanvasElement
      const context = (canvas as HTMLCanvasElement).getContext('2d')!
      const { data } = context.getImageData(across * width, down * height, 1, 1)
      return [...data.subarray(0, 3)]
    },
    [x, y],
  )

it('learns a picture that is dropped, on two tabs; each alone knows its band', async () => {
  const context = await browser.newContext({ viewport: { width: 1400, height: 900 } })
  await context.grantPermissions(iceWithoutRoutePermissions)
  const open = async (url: string) => {
    const page = await context.newPage()
    page.on('pageerror', (error) => complaints.push(error.message))
    page.on('console', (message) => {
      if (message.type() === 'error') complaints.push(message.text())
    })
    await page.goto(url)
    return page
  }
  const maker = await open(`${served.localUrl}demos/picture/?steps=150`)
  await see(maker, 'Alone in the room')
  await maker.getByRole('img', { name: 'Original', exact: true }).waitFor()
  await photograph(maker, 'lobby')

  await drop(maker, Buffer.from('no picture').toString('base64'), 'notes.txt', 'text/plain')
  await maker
    .getByText('notes.txt: expected a picture that this browser can read, got text/plain')
    .waitFor()
  await photograph(maker, 'no-picture')
  await drop(maker, discPng(), 'disc.png', 'image/png')
  await maker.getByText('128 × 64 pixels').waitFor()
  await maker.waitForURL(/data=given/)
  const [red, , blue] = await colourAt(maker, 'Original', 2 / 3, 0.5)
  expect(red - blue).toBeGreaterThan(150)

  // The second tab has it from the first one.
  const second = await open(await maker.getByLabel('Open this link').inputValue())
  await see(maker, 'Ready with 2 ranks')
  const pages = [maker, second]
  await button(maker, 'Start').click()
  await expect.poll(() => decibels(maker), { timeout: 60_000 }).toBeGreaterThan(0)
  for (const page of pages) await see(page, 'Finished')
  for (const page of pages) {
    await expect.poll(() => decibels(page)).toBeGreaterThan(25)
    const learned = await colourAt(page, 'Learned', 2 / 3, 0.5)
    expect(learned[0] - learned[2]).toBeGreaterThan(150)
  }
  await button(maker, 'the error').click()
  await maker.getByRole('img', { name: 'Error', exact: true }).waitFor()
  await photograph(maker, 'learned')
  await button(maker, 'twice as fine').click()
  const finer = maker.getByRole('img', { name: 'Learned, twice as fine' })
  await expect.poll(() => finer.getAttribute('width')).toBe('256')

  // Without an exchange: right in the band of its own, and not so elsewhere.
  await button(maker, 'a boat at sunset (built in)').click()
  await button(maker, 'a band of its own').click()
  await button(maker, 'off: each tab alone').click()
  await maker.waitForURL(/strategy=alone&partition=own-slice/)
  await button(maker, 'the error').click()
  await button(maker, 'Start again').click()
  for (const page of pages)
    await page.getByRole('heading', { name: 'Run 2', exact: true }).waitFor({ timeout: 90_000 })
  for (const page of pages) {
    await page.getByText(/outlined: this tab's band, 50 % of the pixels/).waitFor()
    await expect.poll(() => decibels(page)).toBeGreaterThan(0)
    // With one it is at 24 here.
    expect(await decibels(page)).toBeLessThan(20)
  }
  await photograph(maker, 'alone-rank-0')
  await photograph(second, 'alone-rank-1')
  await context.close()
  expect(complaints).toEqual([])
}, 240_000)
