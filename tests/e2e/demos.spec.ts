import { mkdirSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Browser, BrowserContext, Page } from 'playwright'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { ensureBuilt } from '../../node/build.ts'
import { iceWithoutRoutePermissions } from '../../node/chromium.ts'
import { type Served, serve } from '../../node/serve.ts'
import { makeDigits } from '../../src/data/digits.ts'
import { type Files, gzip, idxFolder } from '../support/idx-files.ts'
import { launchBrowser } from '../support/launch-browser.ts'

/** Each demo at its own address, as people use it. Pictures go to the folder that TABRING_PICTURES names, or to test-results/page. */
const pictures =
  process.env.TABRING_PICTURES || join(import.meta.dirname, '..', '..', 'test-results', 'page')

let served: Served
/** A folder with digits, which the page's server offers at /data/. */
let data: string
let browser: Browser
let context: BrowserContext | undefined
/** What pages complained about; must stay empty. */
let complaints: string[] = []

beforeAll(async () => {
  mkdirSync(pictures, { recursive: true })
  data = await mkdtemp(join(tmpdir(), 'tabring-idx-'))
  for (const [name, bytes] of Object.entries(
    idxFolder(makeDigits({ seed: 6, train: 200, test: 40 })),
  ))
    await writeFile(join(data, `${name}.gz`), gzip(bytes))
  served = await serve({ root: await ensureBuilt(), port: 0, mounts: { '/data/': data } })
  browser = await launchBrowser()
})
afterAll(async () => {
  await browser?.close()
  await served?.close()
  if (data) await rm(data, { recursive: true })
})
afterEach(async () => {
  await context?.close()
  context = undefined
  const found = complaints
  complaints = []
  expect(found).toEqual([])
})

async function openTab(url: string): Promise<Page> {
  if (!context) {
    context = await browser.newContext({ viewport: { width: 1400, height: 900 } })
    await context.grantPermissions(iceWithoutRoutePermissions)
  }
  const page = await context.newPage()
  page.on('pageerror', (error) => complaints.push(error.message))
  page.on('console', (message) => {
    if (message.type() === 'error') complaints.push(message.text())
  })
  await page.goto(url)
  return page
}

const status = (page: Page) => page.locator('.status h2 [role=status]')
/** Of the page's run of that number, where it is told: a later run is over as soon as it begins, and says what the one before said. */
async function see(page: Page, title: string | RegExp, run?: number): Promise<void> {
  if (run) await page.locator('#summary').getByText(`Run ${run}`).waitFor({ timeout: 60_000 })
  await status(page).filter({ hasText: title }).waitFor({ timeout: 60_000 })
}
const button = (page: Page, name: string) => page.getByRole('button', { name, exact: true })

async function picture(page: Page, name: string): Promise<void> {
  await page.bringToFront() // a tab behind another draws a frame a second
  for (const [width, colorScheme] of [
    [1400, 'light'],
    [1400, 'dark'],
    [375, 'light'],
  ] as const) {
    await page.setViewportSize({ width, height: 900 })
    await page.emulateMedia({ colorScheme })
    await page.waitForTimeout(100) // the chart follows on the next frame
    const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)
    expect(wider, `${name} at ${width} px`).toBeLessThanOrEqual(0)
    const path = join(pictures, `demo-${name}-${width}-${colorScheme}.png`)
    await page.screenshot({ path, fullPage: true })
  }
  await page.setViewportSize({ width: 1400, height: 900 })
  await page.emulateMedia({ colorScheme: 'light' })
}

describe('playground', () => {
  /** What the canvas below the points shows; empty while nothing has been learned. */
  const boundaryOf = (page: Page) =>
    page
      .locator('.plane canvas[data-has-field=true]')
      .evaluate((canvas) => (canvas as HTMLCanvasElement).toDataURL())

  it('tabs with a sector each disagree without an exchange, and agree with one', async () => {
    const maker = await openTab(`${served.localUrl}demos/playground/?data=xor&steps=150`)
    await see(maker, 'Alone in the room')
    await picture(maker, 'playground-lobby')
    const link = await maker.getByLabel('Open this link').inputValue()
    expect(link).toContain('/?demo=playground#room=')
    const second = await openTab(link)
    await see(maker, 'Ready with 2 ranks')
    const pages = [maker, second]

    await button(maker, 'a sector of its own').click()
    await button(maker, 'off: each tab alone').click()
    await maker.waitForURL(/strategy=alone&partition=own-slice/)
    await button(maker, 'Start').click()
    await Promise.all(pages.map((page) => see(page, 'Finished')))
    const [own, other] = await Promise.all(pages.map(boundaryOf))
    expect(own).not.toBe(other)
    await picture(maker, 'playground-alone-rank-0')
    await picture(second, 'playground-alone-rank-1')

    await button(maker, 'on: averaged over all tabs').click()
    await button(maker, 'Start again').click()
    await Promise.all(pages.map((page) => see(page, 'Finished', 2)))
    // Each tab asks once more behind the last step.
    await expect.poll(async () => new Set(await Promise.all(pages.map(boundaryOf))).size).toBe(1)
    await picture(maker, 'playground-ddp')
    expect(await boundaryOf(maker)).not.toBe(own)
  })

  it('trains on points that were drawn, and ticks off its stated result', async () => {
    const page = await openTab(`${served.localUrl}demos/playground/?steps=20`)
    await see(page, 'Alone in the room')
    await button(page, 'Draw your own').click()
    const box = (await page.locator('.plane').boundingBox())!
    const stroke = async (x: number) => {
      await page.mouse.move(box.x + x * box.width, box.y + 0.15 * box.height)
      await page.mouse.down()
      await page.mouse.move(box.x + x * box.width, box.y + 0.85 * box.height, { steps: 30 })
      await page.mouse.up()
    }
    await stroke(0.25)
    await button(page, '■ class 1').click()
    await stroke(0.75)
    await page.getByText(/^\d+ points. The next run trains on them/).waitFor()
    await page.waitForURL(/data=given/)
    await picture(page, 'playground-drawing')
    await button(page, 'Start').click()
    await see(page, 'Finished')
    await picture(page, 'playground-drawn')

    await button(page, 'two spirals').click()
    await page.getByLabel('More settings').or(page.getByText('More settings')).click()
    await page.getByLabel('Steps', { exact: true }).fill('')
    await button(page, 'Start again').click()
    await see(page, 'Finished')
    await page.locator('.expected [data-is=reached]').waitFor()
    await picture(page, 'playground-spiral')
  })
})

describe('digits', () => {
  const folder = idxFolder(makeDigits({ seed: 5, train: 300, test: 60 }))
  const broken = {
    'train-labels': folder['test-labels-idx1-ubyte'],
    'train-images-idx3-ubyte': folder['train-images-idx3-ubyte'],
  }
  /** Drops files on the demo, as a person would. */
  const drop = (page: Page, files: Files) =>
    page.locator('.demo.digits').evaluate(
      (place, named) => {
        const transfer = new DataTransfer()
        for (const [name, base64] of named) {
          const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0))
          transfer.items.add(new File([bytes], name))
        }
        const init = { dataTransfer: transfer, bubbles: true, cancelable: true }
        if (place.dispatchEvent(new DragEvent('drop', init))) throw new Error('the page let it go')
      },
      Object.entries(files).map(([name, bytes]) => [name, Buffer.from(bytes).toString('base64')]),
    )

  const bars = (page: Page) =>
    page.getByRole('list', { name: 'Probability of each digit' }).locator('.bar-value')

  it.each(['mlp', 'cnn'])(
    '%s: says what a drawn digit is, and shows filters and mistakes',
    async (model) => {
      const page = await openTab(`${served.localUrl}demos/digits/?model=${model}&steps=40`)
      await see(page, 'Alone in the room')
      const boxOf = async () => (await page.locator('.pad').boundingBox())!
      let box = await boxOf()
      await page.mouse.move(box.x + 0.5 * box.width, box.y + 0.15 * box.height)
      await page.mouse.down()
      await page.mouse.move(box.x + 0.52 * box.width, box.y + 0.85 * box.height, { steps: 15 })
      await page.mouse.up()
      expect(await bars(page).allTextContents()).toEqual(Array(10).fill('–'))
      await button(page, 'Start').click()
      await see(page, 'Finished')
      await page.locator('.tiles .tile').first().waitFor()
      await page.getByRole('heading', { name: /among 512 held-out digits$/ }).waitFor()
      await bars(page).filter({ hasText: /[1-9]/ }).first().waitFor()
      const one = await bars(page).allTextContents()
      const shares = one.map(Number.parseFloat)
      expect(Math.abs(shares.reduce((sum, share) => sum + share, 0) - 100)).toBeLessThan(1)
      // An upright line is a 1 after few steps already.
      expect(shares.indexOf(Math.max(...shares))).toBe(1)
      await picture(page, `digits-${model}`)

      await button(page, 'Clear').click()
      expect(await bars(page).allTextContents()).toEqual(Array(10).fill('–'))
      box = await boxOf() // the end of the run has moved it
      const ring = Array.from({ length: 25 }, (_, i) => (2 * Math.PI * i) / 24)
      for (const [i, angle] of ring.entries()) {
        const x = box.x + box.width * (0.5 + 0.22 * Math.sin(angle))
        await page.mouse.move(x, box.y + box.height * (0.5 - 0.33 * Math.cos(angle)))
        if (i === 0) await page.mouse.down()
      }
      await page.mouse.up()
      await expect
        .poll(async () => {
          const shares = (await bars(page).allTextContents()).map(Number.parseFloat)
          return shares.indexOf(Math.max(...shares))
        })
        .toBe(0)
      if (model === 'cnn') return

      // By the keyboard: an upright line again.
      const pad = page.getByRole('application', { name: 'Pad to draw a digit on' })
      await pad.focus()
      await page.keyboard.press('Delete')
      expect(await bars(page).allTextContents()).toEqual(Array(10).fill('–'))
      await page.keyboard.press('ArrowDown')
      expect(await bars(page).allTextContents()).toEqual(Array(10).fill('–'))
      await page.keyboard.press('Space')
      for (let i = 0; i < 13; i++) await page.keyboard.press('ArrowDown')
      await page.getByText('Pen down, column 11, row 18 of 20').waitFor()
      await expect
        .poll(async () => {
          const shares = (await bars(page).allTextContents()).map(Number.parseFloat)
          return shares.indexOf(Math.max(...shares))
        })
        .toBe(1)
      await picture(page, 'digits-keyboard')
    },
  )

  it('takes four IDX files that are dropped, on two tabs, or a folder with an address', async () => {
    const maker = await openTab(`${served.localUrl}demos/digits/?steps=20`)
    await see(maker, 'Alone in the room')
    await drop(maker, { 'notes.txt': new TextEncoder().encode('no digits'), ...broken })
    await maker.getByText('notes.txt: expected an IDX file that begins with 0x00').waitFor()
    await maker.getByText('expected 300 labels for the 300 images').waitFor()
    await picture(maker, 'digits-wrong-files')
    await drop(maker, folder)
    await maker.getByText('trains on 300 images, and 60 are held out').waitFor()
    await maker.waitForURL(/data=given/)
    await picture(maker, 'digits-files')

    const second = await openTab(await maker.getByLabel('Open this link').inputValue())
    await see(maker, 'Ready with 2 ranks')
    await button(maker, 'Start').click()
    for (const page of [maker, second]) {
      await see(page, 'Finished')
      await page.getByRole('heading', { name: /among 60 held-out digits$/ }).waitFor()
    }

    await maker.getByLabel('Or the address of a folder').fill('/data/')
    await button(maker, 'Take this folder').click()
    await maker.waitForURL(/data=%2Fdata%2F/)
    await button(maker, 'Start again').click()
    for (const page of [maker, second]) {
      await see(page, 'Finished')
      await page.getByRole('heading', { name: /among 40 held-out digits$/ }).waitFor()
    }

    // The room's link has the experiment that is on show, and a tab that comes by it sees that one.
    await maker.locator('#setting-demo').selectOption('picture')
    const link = maker.getByLabel('Open this link')
    await expect.poll(() => link.inputValue()).toContain('/?demo=picture#room=')
    const third = await openTab(await link.inputValue())
    await third.locator('.demo.picture').waitFor()
    await maker.locator('#setting-demo').selectOption('digits')
    await expect.poll(() => link.inputValue()).toMatch(/\/#room=/)
  })

  it('a finger draws on a phone, and does not scroll the page', async () => {
    context = await browser.newContext({
      viewport: { width: 375, height: 667 },
      hasTouch: true,
      isMobile: true,
    })
    const page = await openTab(`${served.localUrl}demos/digits/`)
    await see(page, 'Alone in the room')
    const pad = page.locator('.pad')
    await pad.scrollIntoViewIfNeeded()
    const client = await context.newCDPSession(page)
    const touch = (type: 'touchStart' | 'touchMove' | 'touchEnd', x?: number, y?: number) =>
      client.send('Input.dispatchTouchEvent', {
        type,
        touchPoints: x === undefined ? [] : [{ x, y: y! }],
      })
    const swipe = async (x: number, from: number, to: number) => {
      await touch('touchStart', x, from)
      for (let i = 1; i <= 10; i++) await touch('touchMove', x, from + ((to - from) * i) / 10)
      await touch('touchEnd')
    }
    const scrolled = () => page.evaluate(() => scrollY)
    const box = (await pad.boundingBox())!
    const before = await scrolled()
    await swipe(box.x + box.width / 2, box.y + 0.8 * box.height, box.y + 0.2 * box.height)
    await page.getByRole('img', { name: 'The digit that you drew' }).waitFor()
    expect(await scrolled()).toBe(before)
    // Beside the pad the same swipe scrolls.
    await swipe(8, box.y + 0.8 * box.height, box.y + 0.2 * box.height)
    await expect.poll(scrolled).not.toBe(before)
  })
})
