import { readFileSync } from 'node:fs'
import type { BrowserContextOptions, Page } from 'playwright'
import { expect, test } from 'vitest'
import { meta } from '../../../demos/strategies/meta.ts'
import { button, drivePages, see } from '../../support/page-driver.ts'
import { expectGoodAppearance } from '../../support/page-looks.ts'

/** The comparison's built page, driven as people do. */
const driver = drivePages()

async function open(query = '', options: BrowserContextOptions = {}): Promise<Page> {
  const url = `${driver.served.localUrl}demos/strategies/${query}`
  const viewport = { width: 1280, height: 900 }
  const page = await driver.openTab(url, await driver.openContext({ viewport, ...options }))
  await page.locator('.chart canvas').nth(1).waitFor()
  return page
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
    const point = Object.fromEntries(names.map((name, i) => [name, row[i]]))
    curves[point.strategy] ??= []
    curves[point.strategy].push(point)
  }
  return curves
}

const largestDifference = (
  some: Record<string, number>[],
  reference: Record<string, number>[],
): number => Math.max(...some.map(({ loss }, i) => Math.abs(loss / reference[i].loss - 1)))

test('reaches its stated result: 1, 2 and 4 ranks follow one curve, ranks without an exchange do not', async () => {
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
  // Equal strategies sum in another order: some bits must differ, or one strategy was shown twice.
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
  await expectGoodAppearance(page, 'strategies-finished')
  await page.close()
}, 120_000)

test('settings go into the address, wrong ones are named, a run can be cancelled', async () => {
  const page = await open('?experiment=mnist&strategies=3&batch=1')
  expect(await page.locator('.error').allTextContents()).toEqual([
    'Choose playground, digits, cores, not "mnist"',
    'Choose one or more of 1, 2, 4, 2x, 4x, 2alone, 2sim, 4sim, not 3',
    'Enter a whole number from 4 to 2048, not 1',
  ])
  expect(await button(page, 'Run').isDisabled()).toBe(true)
  const steps = page.getByRole('textbox', { name: 'Steps' })
  await page.getByLabel('Experiment').selectOption('digits')
  await page.getByLabel('2 ranks, batch × 2').check()
  await steps.fill('2000')
  await page.waitForURL((url) => url.search === '?experiment=digits&strategies=2x&steps=2000')
  await expectGoodAppearance(page, 'strategies-ready')

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

test('ranks on cores and simulated devices end with bars, reasons and a curve, each under its name', async () => {
  const page = await open('?experiment=cores&strategies=1,2,4sim&steps=4')
  await button(page, 'Run').click()
  await see(page, 'Finished')
  const names = ['1 rank', '2 ranks', '4 devices, simulated']
  expect(await page.locator('.steps li > span:first-child').allTextContents()).toEqual(names)
  const reasons = await page.locator('.steps > p').allTextContents()
  expect(reasons.map((reason) => reason.split(':')[0])).toEqual(names.slice(1))
  expect(reasons.every((reason) => /exchanging \d.* takes \d/.test(reason))).toBe(true)
  const curves = await savedCurves(page)
  expect(largestDifference(curves['4sim'], curves[1])).toBe(0)
  await expectGoodAppearance(page, 'strategies-cores')
  await page.close()
}, 60_000)

test('says what is in the way: no WebGPU, a switch that cannot be', async () => {
  const page = await driver.browser.newPage()
  const notice = page.locator('.notice h2')
  await page.goto(`${driver.served.localUrl}demos/strategies/?debug=much`)
  expect(await notice.textContent()).toBe('A setting in this address is not valid')
  await page.addInitScript(() => Reflect.deleteProperty(Navigator.prototype, 'gpu'))
  await page.goto(`${driver.served.localUrl}demos/strategies/?device=webgpu`)
  expect(await notice.textContent()).toBe('This browser has no WebGPU')
  expect(await button(page, 'Run').count()).toBe(0)
  await page.close()
})
