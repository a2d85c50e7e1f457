import { join } from 'node:path'
import type { BrowserContextOptions, Page } from 'playwright'
import { expect, test } from 'vitest'
import { allDemos } from '../../../demos/all-demos.ts'
import { meta } from '../../../demos/ring/meta.ts'
import { isolationHeaders } from '../../../node/headers.ts'
import { violations } from '../../support/axe.ts'
import { drivePages, pictures } from '../../support/page-driver.ts'

/** The ring demo's built page, driven as people do. */
const driver = drivePages({ complaints: ['error', 'warning'] })

async function open(query = '', options: BrowserContextOptions = {}): Promise<Page> {
  const url = `${driver.served.localUrl}demos/ring/${query}`
  const page = await driver.openTab(url, await driver.openContext(options))
  const headers = (await page.request.get(url)).headers()
  expect(headers).toMatchObject(
    Object.fromEntries(
      Object.entries(isolationHeaders).map(([name, value]) => [name.toLowerCase(), value]),
    ),
  )
  await settled(page)
  return page
}

/** The run of the settings that are shown has been worked out. */
const settled = (page: Page) => page.locator('.instruments[aria-busy=false]').waitFor()
const phase = (page: Page) => page.locator('.transport h2').textContent()
const seePhase = (page: Page, text: string | RegExp) =>
  page.locator('.transport h2').filter({ hasText: text }).waitFor()
const verdicts = (page: Page) => page.locator('.verdicts li').allTextContents()
const cell = (page: Page, rank: number, chunk: number) =>
  page.locator('.held tbody tr').nth(rank).locator('td').nth(chunk)

test('the page of demos links to each, and each is there', async () => {
  const page = await driver.openTab(`${driver.served.localUrl}demos/`)
  const names = Object.values(
    await page.locator('.demo-list section').evaluateAll((all) => all.map((one) => one.id)),
  )
  expect(names).toEqual(Object.keys(allDemos))
  for (const link of await page.locator('.demo-list a').all()) {
    const address = await link.evaluate((one) => (one as HTMLAnchorElement).href)
    expect((await page.request.get(address)).status(), address).toBe(200)
  }
  await page.close()
})

/** Moves the scrubber to a share of the run. */
const scrub = (page: Page, share: number) =>
  page.locator('.scrub').evaluate((element, to) => {
    const input = element as HTMLInputElement
    input.value = String(Number(input.max) * to)
    input.dispatchEvent(new Event('input', { bubbles: true }))
  }, share)

async function picture(page: Page, name: string): Promise<void> {
  await page.screenshot({ path: join(pictures, `ring-${name}.png`), fullPage: true })
  const found = {
    tooWide: await page.evaluate(() => document.documentElement.scrollWidth - innerWidth),
    inTheWay: await violations(page),
  }
  expect({ name, ...found }).toEqual({ name, tooWide: 0, inTheWay: [] })
}

test('steps, plays, scrubs, and says how it ended', async () => {
  const page = await open()
  expect(await phase(page)).toBe('Reduce-scatter, step 1 of 3')
  await page.keyboard.press('ArrowRight')
  await seePhase(page, 'Reduce-scatter, step 2 of 3')
  // Chunk 0 has come from rank 1, where it began, to rank 2.
  expect(await cell(page, 2, 0).locator('.unseen').textContent()).toBe('ranks 1 and 2')
  expect(await page.locator('[role=status]').textContent()).toMatch(/^20\.\d ms: .*Arrived: chunk/)
  for (let i = 0; i < 2; i++) await page.keyboard.press('ArrowRight')
  await seePhase(page, 'All-gather, step 1 of 3')
  for (let rank = 0; rank < 4; rank++)
    expect(await cell(page, rank, rank).getAttribute('data-whole')).toBe('true')
  expect(await page.locator('td[data-whole=true]').count()).toBe(4)
  await page.keyboard.press('ArrowLeft')
  await seePhase(page, 'Reduce-scatter, step 3 of 3')
  expect(await page.locator('td[data-whole=true]').count()).toBe(0)

  // A click in the strip goes to that time.
  const strip = page.locator('.scrub')
  await strip.click({ position: { x: 0.7 * (await strip.boundingBox())!.width, y: 5 } })
  await seePhase(page, 'All-gather, step 2 of 3')
  expect(await page.locator('.tile').count()).toBe(4)
  expect((await verdicts(page)).every((one) => one.startsWith('○'))).toBe(true)

  await page.keyboard.press('Space')
  await page.getByRole('button', { name: 'Pause' }).waitFor()
  await seePhase(page, 'Finished')
  expect(await page.locator('.verdicts li[data-is=true]').count()).toBe(2)
  expect(await page.locator('td[data-whole=true]').count()).toBe(16)
  expect(await page.locator('.costs .tick[data-is=true]').count()).toBe(2)
  await page.close()
}, 60_000)

test('sliders make another run, whose link makes it again', async () => {
  const page = await open()
  const slide = async (label: string, presses: number) => {
    await page.getByLabel(label, { exact: true }).focus()
    for (let i = 0; i < presses; i++) await page.keyboard.press('ArrowRight')
  }
  await slide('Ranks', 3)
  await slide('Loss', 7)
  await page.getByLabel('Elements', { exact: true }).focus()
  await page.keyboard.press('End')
  await page.getByLabel('Algorithm', { exact: true }).selectOption('hierarchical')
  await settled(page)
  expect(new URL(page.url()).search).toBe(
    '?ranks=7&length=100000&lossPercent=10&algorithm=hierarchical&machines=2',
  )
  await scrub(page, 1)
  await seePhase(page, 'Finished')
  const counted = await page.locator('.costs').textContent()
  const took = await page.locator('.readout .value').first().textContent()
  const link = await page.locator('#link').inputValue()
  expect(link).toBe(page.url())

  await page.goto(link)
  await settled(page)
  await scrub(page, 1)
  await seePhase(page, 'Finished')
  expect(await page.locator('.costs').textContent()).toBe(counted)
  expect(await page.locator('.readout .value').first().textContent()).toBe(took)
  expect(await page.locator('.verdicts li[data-is=true]').count()).toBe(2)

  // One turned bit, and no tick is left.
  await page.getByLabel('Flip one bit').check()
  await settled(page)
  await seePhase(page, 'Finished, with wrong sums')
  expect(await page.locator('.verdicts li[data-is=false]').count()).toBe(2)
  // And the blocks that have it are marked, others are not.
  const marked = await page.locator('td[data-wrong=true]').count()
  expect(marked).toBeGreaterThan(0)
  expect(marked).toBeLessThan(49)
  await page.close()

  const refused = await open('?ranks=99')
  expect(await refused.getByRole('alert').textContent()).toContain(
    'ranks=99: expected a whole number from 2 to 16',
  )
  await refused.close()
}, 60_000)

test('reaches its stated result', async () => {
  const { ranks, length, algorithm, steps, bytesPerRank } = meta.expected
  const page = await open(`?ranks=${ranks}&length=${length}&algorithm=${algorithm}`)
  await scrub(page, 1)
  await seePhase(page, 'Finished')
  expect(await verdicts(page)).toHaveLength(3)
  expect(await page.locator('.verdicts li[data-is=true]').count()).toBe(3)
  const rows = await page.locator('.costs tbody tr').allTextContents()
  expect(rows[0]).toContain(`${steps}${steps}`)
  expect(rows[1]).toContain(`${bytesPerRank.toLocaleString('en')} B`)
  await page.close()
})

test('fits wide and narrow, light and dark, and leaps where motion is to be reduced', async () => {
  for (const colorScheme of ['light', 'dark'] as const) {
    const page = await open('', { colorScheme })
    await picture(page, `launch-1400-${colorScheme}`)
    await scrub(page, 0.42)
    await seePhase(page, 'step 3 of 3')
    await picture(page, `scatter-1400-${colorScheme}`)
    await scrub(page, 1)
    await seePhase(page, 'Finished')
    await picture(page, `finished-1400-${colorScheme}`)
    await page.close()
  }
  const crowd = await open('?ranks=16&length=100000&lossPercent=2', { colorScheme: 'dark' })
  await scrub(crowd, 0.3)
  await seePhase(crowd, 'step 10 of 15')
  await picture(crowd, 'lossy-1400-dark')
  await crowd.close()
  const machines = await open('?algorithm=hierarchical&ranks=8&machines=3&length=8')
  await scrub(machines, 0.3)
  await seePhase(machines, 'step 2 of 2')
  await picture(machines, 'machines-1400-light')
  await machines.close()

  const phone = await open('?flip=1', {
    viewport: { width: 375, height: 812 },
    reducedMotion: 'reduce',
  })
  await scrub(phone, 0.42)
  await seePhase(phone, 'step 3 of 3')
  await picture(phone, 'scatter-375-light')
  await phone.getByRole('button', { name: 'Play' }).click()
  const times = await phone.evaluate(async () => {
    const seen = new Set<string>()
    const until = performance.now() + 2500
    while (performance.now() < until) {
      await new Promise(requestAnimationFrame)
      seen.add(document.querySelector('.readout .value')!.textContent!)
    }
    return seen.size
  })
  expect(times).toBeGreaterThan(1)
  expect(times).toBeLessThan(6)
  await scrub(phone, 1)
  await seePhase(phone, 'Finished, with wrong sums')
  await picture(phone, 'wrong-375-light')
  await phone.close()
}, 60_000)
