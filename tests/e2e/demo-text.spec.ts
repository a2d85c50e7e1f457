import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import type { Browser, Page } from 'playwright'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { ensureBuilt } from '../../node/build.ts'
import { type Served, serve } from '../../node/serve.ts'
import { launchBrowser } from '../support/launch-browser.ts'

/** The text demo at its own address. Pictures go to the folder that TABRING_PICTURES names, or to test-results/page. */
const pictures =
  process.env.TABRING_PICTURES || join(import.meta.dirname, '..', '..', 'test-results', 'page')

let served: Served
let browser: Browser
let page: Page
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

async function picture(name: string): Promise<void> {
  for (const [width, colorScheme] of [
    [1400, 'light'],
    [1400, 'dark'],
    [375, 'light'],
  ] as const) {
    await page.setViewportSize({ width, height: 900 })
    await page.emulateMedia({ colorScheme })
    const path = join(pictures, `demo-text-${name}-${width}-${colorScheme}.png`)
    await page.locator('#demo').screenshot({ path })
    const tooWide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)
    expect(tooWide, `${width}`).toBeLessThanOrEqual(0)
  }
  await page.setViewportSize({ width: 1400, height: 900 })
}

const newest = () => page.locator('.samples li p').first()
const see = (title: string) =>
  page.locator('.status h2 [role=status]').filter({ hasText: title }).waitFor({ timeout: 90_000 })

/** Drops a file on the field, as a person would. */
const drop = (name: string, bytes: Buffer) =>
  page.getByLabel('Paste a text').evaluate(
    (field, file) => {
      const transfer = new DataTransfer()
      const bytes = Uint8Array.from(atob(file.base64), (letter) => letter.charCodeAt(0))
      transfer.items.add(new File([bytes], file.name, { type: 'text/plain' }))
      const init = { dataTransfer: transfer, bubbles: true, cancelable: true }
      if (field.dispatchEvent(new DragEvent('drop', init))) throw new Error('the page let it go')
    },
    { name, base64: bytes.toString('base64') },
  )

it('writes as it learns, says what comes next and where it looks, and takes a text', async () => {
  page = await browser.newPage({ viewport: { width: 1400, height: 900 } })
  page.on('pageerror', (error) => complaints.push(error.message))
  page.on('console', (message) => {
    if (message.type() === 'error') complaints.push(message.text())
  })
  await page.goto(`${served.localUrl}demos/text/?steps=70&batchSize=8`)
  await see('Alone in the room')
  await page.locator('.text-demo').waitFor()
  await page.getByRole('button', { name: 'Start', exact: true }).click()
  await newest().waitFor({ timeout: 60_000 })
  const first = await newest().innerText()
  expect(first.length).toBeGreaterThan('Once there'.length)
  await expect.poll(() => newest().innerText(), { timeout: 60_000 }).not.toBe(first)
  await see('Finished')
  // The longer one that it writes when it has learned.
  const written = async () => (await newest().innerText()).length
  await expect.poll(written, { timeout: 60_000 }).toBeGreaterThan(240)

  const values = page.locator('.next .bar-value')
  const shares = async () => (await values.allInnerTexts()).map((text) => Number.parseFloat(text))
  await expect
    .poll(async () => (await shares()).reduce((sum, value) => sum + value, 0))
    .toBeGreaterThan(99)
  expect((await shares()).reduce((sum, value) => sum + value, 0)).toBeLessThan(101)
  const prompt = page.getByLabel('Prompt', { exact: true })
  const before = await prompt.inputValue()
  await page.locator('.next button').first().click()
  const longer = await prompt.inputValue()
  expect(longer).toHaveLength(before.length + 1)
  expect(await page.locator('.map').count()).toBe(8)
  // The maps of the longer prompt, which come a moment later.
  await expect.poll(() => page.locator('.attention .strip span').count()).toBe(longer.length)
  await page.locator('.map').nth(5).focus()
  await page.locator('.attention').getByText('Layer 2, head 2: character').waitFor()
  // By keys from place to place: up to an earlier character, and to the first one that it takes from.
  const place = async () => {
    const words = await page.getByText(/^Layer 2, head 2: character/).textContent()
    return /character (\d+), .+ takes .+ from character (\d+),/.exec(words!)!.slice(1).map(Number)
  }
  const [query] = await place()
  expect(query).toBe(longer.length)
  await page.keyboard.press('ArrowUp')
  await expect.poll(async () => (await place())[0]).toBe(query - 1)
  for (let i = 0; i < query; i++) await page.keyboard.press('ArrowLeft')
  await expect.poll(place).toEqual([query - 1, 1])
  await page.keyboard.press('ArrowRight')
  await expect.poll(place).toEqual([query - 1, 2])
  // The old prompt's line is long already: that of the new one is waited for.
  const asked = () => page.locator('.samples li b').first().textContent()
  await expect.poll(asked, { timeout: 60_000 }).toBe(longer)
  await expect.poll(written, { timeout: 60_000 }).toBeGreaterThan(240)
  await picture('finished')

  await prompt.fill('#')
  await page.getByText('The text has no "#"').waitFor()
  await page.getByText('Train on your own text').click()
  await page.getByLabel('Paste a text').fill('too short')
  await page.getByText('expected 330 characters or more, got 9').waitFor()
  await drop('latin.txt', Buffer.from([0xe4, 0xf6, 0xfc]))
  await page.getByText('latin.txt: text: expected UTF-8').waitFor()
  await drop('bell.txt', Buffer.from('ding dong bell. '.repeat(30)))
  await page.getByText('480 characters, 10 of 256 different ones').waitFor()
  await page.getByRole('button', { name: 'Take this text' }).click()
  await page.getByText('The next run learns this text').waitFor()
  await picture('given')
  await page.getByRole('button', { name: 'Start again' }).click()
  await expect.poll(() => prompt.inputValue(), { timeout: 60_000 }).toBe('ding dong')
  expect(complaints).toEqual([])
}, 240_000)
