import type { BrowserContextOptions, Page } from 'playwright'
import { expect, test } from 'vitest'
import { meta } from '../../../demos/split/meta.ts'
import { button, drivePages, see } from '../../support/page-driver.ts'
import { expectGoodAppearance } from '../../support/page-looks.ts'

/** The built page of the split network, driven as people do. */
const driver = drivePages()

async function open(query = '', options: BrowserContextOptions = {}): Promise<Page> {
  const url = `${driver.served.localUrl}demos/split/${query}`
  const viewport = { width: 1280, height: 900 }
  const page = await driver.openTab(url, await driver.openContext({ viewport, ...options }))
  await page.locator('.status[data-stage=ready]').waitFor({ timeout: 120_000 })
  return page
}

const stepOf = async (page: Page): Promise<number> =>
  Number.parseInt((await page.locator('.status .words p').textContent()) ?? '', 10)

const tasksOf = (page: Page, panel: string) => page.locator(`${panel} .lane .task`)

test('trains in four ways to the same losses, within what the page states', {
  timeout: 240_000,
}, async () => {
  const page = await open('?devices=3&split=20')
  const { sameWithin, withinSteps } = meta.expected
  await button(page, 'Train').click()
  await expect.poll(() => stepOf(page), { timeout: 150_000 }).toBeGreaterThan(60)
  await button(page, 'Pause').click()
  await page.locator('.status[data-stage=ready]').waitFor()
  expect(await stepOf(page)).toBeLessThanOrEqual(withinSteps)
  for (const way of ['#data', '#model', '#pipeline']) {
    const words = (await page.locator(`${way} p`).allTextContents()).join(' ')
    const [, off] = /losses within (\S+) of one device/.exec(words) ?? []
    expect(words).toMatch(/the same losses as on one device|losses within/)
    if (off) expect(Number(off)).toBeLessThan(sameWithin)
  }
  const losses = await page.locator('.ways .aside').allTextContents()
  expect(losses).toHaveLength(4)
  const [first] = losses.map((text) => Number(text.replace('loss ', '')))
  expect(first).toBeLessThan(0.69)
  // Six micro-batches through three stages, forward and backward; the numbers are in those that have room.
  expect(await tasksOf(page, '#pipeline').count()).toBeGreaterThanOrEqual(36)
  expect(await page.locator('#pipeline tbody tr').count()).toBe(3)
})

test('another split size begins again; the simulated step plays and says what stages hold', {
  timeout: 240_000,
}, async () => {
  const page = await open('?schedule=gpipe')
  const simulated = () => page.locator('#simulated h3').first().textContent()
  expect(await simulated()).toMatch(/^Pipeline, 4 micro-batches: .*idle 2\d %$/)
  await page.getByLabel('Split size').fill('8')
  expect(await simulated()).toMatch(/^Pipeline, 12 micro-batches: .*idle \d %$/)
  await page.waitForURL('**/demos/split/?schedule=gpipe&split=10')
  await page.locator('.status[data-stage=ready]').waitFor({ timeout: 120_000 })
  expect(await stepOf(page)).toBe(1)

  const time = page.getByLabel('Time in the step')
  const end = Number(await time.getAttribute('max'))
  // GPipe's last stage has all forwards behind it when its backwards begin.
  await time.fill(String(end * 0.4))
  expect(await page.locator('.stage').nth(0).locator('.held').count()).toBe(12)
  await page.locator('#simulated').getByRole('button', { name: 'Play' }).click()
  await expect.poll(async () => Number(await time.inputValue())).toBeGreaterThan(end * 0.42)
  await page.locator('#simulated').getByRole('button', { name: 'Pause' }).click()
})

test('fits wide and narrow, light and dark; a wrong address is said', {
  timeout: 240_000,
}, async () => {
  const page = await open('?devices=4&split=15&schedule=zigzag')
  expect(await page.locator('.settings .error').textContent()).toBe(
    'Not taken from the address: schedule=zigzag: expected 1f1b, gpipe',
  )
  await expectGoodAppearance(page, 'split')
})

test('its link trains the same network over ranks in stages', { timeout: 240_000 }, async () => {
  const page = await open('?devices=3')
  const href = await page.getByRole('link', { name: 'a pipeline' }).getAttribute('href')
  // Three ranks of one tab, as three people would be.
  await page.goto(new URL(`${href}&ranks=3&steps=40&maxStepsPerSec=0`, page.url()).href)
  await button(page, 'Start').click()
  await see(page, 'Finished', 150_000)
  const layers = page
    .locator('table', { hasText: 'Layers' })
    .first()
    .locator('tbody td:nth-of-type(1)')
  expect(await layers.allTextContents()).toEqual(['0', '1, 2', '3 … 6'])
})
