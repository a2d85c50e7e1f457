import { mkdirSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import type { Browser, BrowserContextOptions, Page } from 'playwright'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { meta } from '../../demos/strategies/meta.ts'
import { ensureBuilt } from '../../node/build.ts'
import { type Served, serve } from '../../node/serve.ts'
import { launchBrowser } from '../support/launch-browser.ts'

/** The comparison's built page, driven as people do. With TABRING_PICTURES naming a folder, it is photographed there. */
const pictures = process.env.TABRING_PICTURES

const axePath = createRequire(import.meta.url).resolve('axe-core/axe.min.js')

let served: Served
let browser: Browser
let complaints: string[] = []
beforeAll(async () => {
  served = await serve({ root: await ensureBuilt(), port: 0 })
  browser = await launchBrowser()
  if (pictures) mkdirSync(pictures, { recursive: true })
})
afterAll(async () => {
  await browser?.close()
  await served?.close()
})
afterEach(() => {
  const found = complaints
  complaints = []
  expect(found).toEqual([])
})

async function open(query = '', options: BrowserContextOptions = {}): Promise<Page> {
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 }, ...options })
  page.on('pageerror', (error) => complaints.push(error.message))
  page.on('console', (message) => {
    if (message.type() === 'error') complaints.push(message.text())
  })
  await page.goto(`${served.localUrl}demos/strategies/${query}`)
  await page.locator('.chart canvas').nth(1).waitFor()
  return page
}

const see = (page: Page, title: string | RegExp) =>
  page.locator('.status h2 [role=status]').filter({ hasText: title }).waitFor()
const button = (page: Page, name: string) => page.getByRole('button', { name, exact: true })

/** Wide and narrow, light and dark: fits, and axe finds nothing. */
async function looks(page: Page, name: string): Promise<void> {
  await page.addScriptTag({ path: axePath })
  for (const [width, colorScheme] of [
    [1280, 'light'],
    [1280, 'dark'],
    [390, 'light'],
    [390, 'dark'],
  ] as const) {
    await page.setViewportSize({ width, height: 900 })
    await page.emulateMedia({ colorScheme })
    const path = join(pictures ?? '', `strategies-${name}-${width}-${colorScheme}.png`)
    if (pictures) await page.screenshot({ path, fullPage: true })
    const found = await page.evaluate(async () => {
      const { violations } = await window.axe.run(document, {})
      return {
        tooWide: Math.max(0, document.documentElement.scrollWidth - innerWidth),
        inTheWay: violations.map(({ id, nodes }) => `${id}: ${nodes[0].html}`),
      }
    })
    expect({ path, ...found }).toEqual({ path, tooWide: 0, inTheWay: [] })
  }
}

/** The losses of each strategy, as the page's own CSV has them. */
async function savedCurves(page: Page): Promise<Record<string, Record<string, number>[]>> {
  const saving = page.waitForEvent('download')
  await button(page, 'Curves as CSV').click()
  const text = readFileSync(await (await saving).path(), 'utf8')
  const [header, ...lines] = text.trim().split('\n')
  const names = header.split(',')
  const rows = lines.map((line) => line.split(',').map((cell) => JSON.parse(cell || 'null')))
  const curves: Record<string, Record<string, number>[]> = {}
  for (const row of rows) {
    curves[row[0]] ??= []
    curves[row[0]].push(Object.fromEntries(names.map((name, i) => [name, row[i]])))
  }
  return curves
}

const largestDifference = (
  some: Record<string, number>[],
  reference: Record<string, number>[],
): number => Math.max(...some.map(({ loss }, i) => Math.abs(loss / reference[i].loss - 1)))

test('reaches its stated result: 1, 2 and 4 ranks train alike, ranks without an exchange do not', async () => {
  const page = await open(meta.expected.query)
  expect(new URL(page.url()).search).toBe(meta.expected.query)
  await button(page, 'Run').focus()
  await page.keyboard.press('Enter')
  await see(page, 'Training: 1 rank, strategy 1 of 4')
  await see(page, 'Finished')

  const curves = await savedCurves(page)
  expect(Object.keys(curves)).toEqual(['1', '2', '4', '2alone'])
  const steps = Number(new URLSearchParams(meta.expected.query).get('steps'))
  for (const curve of Object.values(curves)) {
    expect(curve.map(({ step }) => step)).toEqual(Array.from({ length: steps }, (_, i) => i + 1))
    expect(curve.at(-1)!.samples).toBe(steps * 96)
    const seconds = curve.map((point) => point.seconds)
    expect(seconds).toEqual([...seconds].sort((a, b) => a - b))
    expect(seconds[0]).toBeGreaterThan(0)
  }
  // Strategies that train alike do so by sums in another order: some bits must differ, or one strategy was shown twice.
  for (const name of ['2', '4']) {
    const difference = largestDifference(curves[name], curves[1])
    expect(difference).toBeGreaterThan(0)
    expect(difference).toBeLessThanOrEqual(meta.expected.sameWithin)
  }
  const apart = largestDifference(curves['2alone'], curves[1])
  expect(apart).toBeGreaterThan(meta.expected.apartBy)

  expect(await page.locator('.verdicts li').count()).toBe(6)
  expect(await page.locator('.verdicts li[data-is=true]').count()).toBe(6)
  const cells = (strategy: string) =>
    page.locator(`tr[data-strategy="${strategy}"] td`).allTextContents()
  for (const ranks of ['2', '4'])
    expect((await cells(ranks)).at(-1)).toMatch(/^\w{8} equal on all$/)
  expect((await cells('2alone')).at(-1)).toMatch(/^\w{8} · \w{8} differ$/)
  expect((await cells('4'))[2]).toBe('24')
  await looks(page, 'finished')
  await page.close()
}, 120_000)

test('settings go into the address, wrong ones are named, a run can be cancelled', async () => {
  const page = await open('?experiment=mnist&strategies=3&batch=1')
  expect(await page.locator('.error').allTextContents()).toEqual([
    'expected playground or digits, got mnist',
    'expected one or more of 1, 2, 4, 2x, 4x, 2alone, got 3',
    'expected a whole number from 4 to 2048, got 1',
  ])
  expect(await button(page, 'Run').isDisabled()).toBe(true)
  const steps = page.getByRole('textbox', { name: 'Steps' })
  await page.getByLabel('Experiment').selectOption('digits')
  await page.getByLabel('2 ranks, batch × 2').check()
  await steps.fill('2000')
  await page.waitForURL((url) => url.search === '?experiment=digits&strategies=2x&steps=2000')
  await looks(page, 'ready')

  await button(page, 'Run').click()
  await page.locator('tr[data-strategy="2x"][data-stage=training]').waitFor()
  expect(await steps.isDisabled()).toBe(true)
  await page.locator('tr[data-strategy="2x"] td[data-loss]').waitFor()
  await button(page, 'Cancel').click()
  await see(page, 'Cancelled')
  const cells = await page.locator('tr[data-strategy="2x"] td').allTextContents()
  expect(cells[0]).toBe('cancelled')
  expect(cells[2]).toBe('64')
  expect(cells[3]).toMatch(/^[1-9]\d* \/ 1008$/)
  expect(await page.locator('.verdicts li[data-is=open]').count()).toBe(1)

  await steps.fill('10')
  await button(page, 'Run again').click()
  await see(page, 'Finished')
  expect((await page.locator('tr[data-strategy="2x"] td').allTextContents())[3]).toBe('5 / 5')
  await page.close()
}, 120_000)

test('says what is in the way: no WebGPU, a switch that cannot be', async () => {
  const page = await browser.newPage()
  const notice = page.locator('.notice h2')
  await page.goto(`${served.localUrl}demos/strategies/?debug=much`)
  expect(await notice.textContent()).toBe('This address has a switch that cannot be')
  await page.addInitScript(() => Reflect.deleteProperty(Navigator.prototype, 'gpu'))
  await page.goto(`${served.localUrl}demos/strategies/`)
  expect(await notice.textContent()).toBe('This browser has no WebGPU')
  expect(await button(page, 'Run').count()).toBe(0)
  await page.close()
})
