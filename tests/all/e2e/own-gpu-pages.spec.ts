import type { Browser, Page } from 'playwright'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { ensureBuilt } from '../../../node/build.ts'
import { type Served, serve } from '../../../node/serve.ts'
import { launchBrowser } from '../../support/launch-browser.ts'

/** The self-test and the benchmark as a visitor runs them. */

let browser: Browser
let served: Served
beforeAll(async () => {
  served = await serve({ root: await ensureBuilt(), port: 0 })
  browser = await launchBrowser()
})
afterAll(async () => {
  await browser?.close()
  await served?.close()
})

async function open(path: string, inPage?: () => void): Promise<Page> {
  const page = await browser.newPage({ viewport: { width: 1400, height: 900 } })
  if (inPage) await page.addInitScript(inPage)
  await page.goto(`${served.localUrl}${path}`)
  return page
}

const start = (page: Page) => page.getByRole('button', { name: /^Run the/ }).click()
const seeStage = (page: Page, stage: string) =>
  page.locator(`.status[data-stage=${stage}]`).waitFor({ timeout: 60_000 })
const markdown = (page: Page) => page.locator('#markdown').inputValue()

/** At both widths neither the page nor a table in its panel is too wide. */
async function expectNoSidewaysScroll(page: Page): Promise<void> {
  for (const width of [1400, 390]) {
    await page.setViewportSize({ width, height: 844 })
    const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)
    expect(wider, `at ${width} px`).toBeLessThanOrEqual(0)
    const tables = await page
      .locator('table')
      .evaluateAll((all) => all.map((one) => one.scrollWidth - one.parentElement!.clientWidth))
    expect(Math.max(0, ...tables), `tables at ${width} px`).toBe(0)
  }
}

test('the self-test of one op passes and hands over its table', async () => {
  const page = await open('selftest.html?op=softmax')
  await expectNoSidewaysScroll(page)
  await start(page)
  await seeStage(page, 'finished')
  expect(await page.locator('.status p').textContent()).toMatch(/^\d+ checks of 1 ops: all passed/)
  expect(await markdown(page)).toMatch(
    /swiftshader.*software adapter.*Chrome \d.*\d{4}-\d\d-\d\d\n\n\| op .*\n.*\n\| softmax \| naive, .* \| \d+ \| 0 \|/,
  )
  await expectNoSidewaysScroll(page)
  await page.close()
})

test('the self-test shows a wrong kernel in full, and can be cancelled', async () => {
  const page = await open('selftest.html?op=softmax,attention', () => {
    const make = GPUDevice.prototype.createShaderModule
    GPUDevice.prototype.createShaderModule = function (descriptor) {
      return make.call(this, { ...descriptor, code: descriptor.code.replaceAll('exp(', 'exp2(') })
    }
  })
  await start(page)
  await page.locator('#failures pre').first().waitFor({ timeout: 60_000 })
  await page.getByRole('button', { name: 'Cancel' }).click()
  await seeStage(page, 'stopped')
  const failure = await page.locator('#failures pre').first().textContent()
  expect(failure).toMatch(
    /^softmax, variant naive, case ".*", seed 1:\noutput 0: \d+ of \d+ elements/,
  )
  expect(await markdown(page)).toContain(failure)
  await page.close()
})

test('the benchmark times the menu and compares it with the peak', async () => {
  const page = await open('bench.html?shapes=64x64x64&forms=nt')
  await start(page)
  await seeStage(page, 'finished')
  const text = await markdown(page)
  expect(text).toMatch(/peak of multiply-adds alone: [\d.,]+ GFLOP\/s/)
  const row = /\| nt 64x64x64 \| [\w-]+ \| ([\d.,]+) \| ([\d.]+) % \| [\w-]+ \| ([\d.]+) % \|/.exec(
    text,
  )
  expect(row, text).not.toBeNull()
  const [gflops, best, untuned] = row!.slice(1).map((number) => Number(number.replace(',', '')))
  expect(gflops).toBeGreaterThan(0)
  expect(best).toBeGreaterThanOrEqual(untuned)
  const beside =
    /\| nt 64x64x64 \| ([\d.,]+) \| ([\d.,]+) \| ([\d.]+) \| ([\d.,]+) \| ([\d.]+) \|/.exec(text)
  expect(beside, text).not.toBeNull()
  const [ours, jax, byJax, tfjs, byTfjs] = beside!
    .slice(1)
    .map((number) => Number(number.replace(',', '')))
  // The ratio is a median of rounds, so only about that of the medians.
  expect(byJax / (ours / jax)).toBeGreaterThan(0.2)
  expect(byJax / (ours / jax)).toBeLessThan(5)
  expect(byTfjs / (ours / tfjs)).toBeGreaterThan(0.2)
  expect(byTfjs / (ours / tfjs)).toBeLessThan(5)
  expect(await page.locator('.status p').textContent()).toMatch(
    /times jax-js [\d.]+, [\d.]+ times TensorFlow.js [\d.]+ as a geometric mean/,
  )
  await expectNoSidewaysScroll(page)
  await page.close()
})

test('the benchmark continues without a library that fails, and omits libraries when asked', async () => {
  const page = await open('bench.html?shapes=64x64x64&forms=nt')
  await page.route(/tfjs.*\.js/, (route) => route.abort())
  await start(page)
  await seeStage(page, 'finished')
  expect(await markdown(page)).toMatch(
    /\| nt 64x64x64 \| [\d.,]+ \| [\d.,]+ \| [\d.]+ \| failed: .*tfjs.* \| {2}\|/,
  )
  await expectNoSidewaysScroll(page)
  await page.close()

  const alone = await open('bench.html?shapes=64x64x64&forms=nt&peers=none')
  await start(alone)
  await seeStage(alone, 'finished')
  expect(await alone.locator('#beside').count()).toBe(0)
  await alone.close()
})
