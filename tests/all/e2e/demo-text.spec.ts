import type { Page } from 'playwright'
import { expect, it } from 'vitest'
import { noViolations, violationsByColours } from '../../support/axe.ts'
import { drivePages, dropOn, photograph, see as seeOn } from '../../support/page-driver.ts'

/** The text demo at its own address. */
const driver = drivePages()
let page: Page

const picture = (name: string) => photograph(page, `demo-text-${name}`, { part: '#demo' })
const newest = () => page.locator('.samples li p').first()
const see = (title: string) => seeOn(page, title, 90_000)

/** Drops a file on the field, as a person would. */
const drop = (name: string, bytes: Buffer) =>
  dropOn(page.getByLabel('Paste a text'), { [name]: bytes }, 'text/plain')

it('writes as it learns, shows the next characters and the attention, and takes a text', async () => {
  page = await driver.openTab(
    `${driver.served.localUrl}demos/text/?steps=70&batchSize=8&maxStepsPerSec=20`,
  )
  await see('Alone in the room')
  await newest().waitFor()
  const untrained = await newest().innerText()
  const plot = page.getByRole('img', { name: /^Loss by step: no step yet; faint: expected/ })
  await plot.locator('canvas').waitFor()
  await page.getByRole('button', { name: 'Start', exact: true }).click()
  await expect.poll(() => newest().innerText(), { timeout: 60_000 }).not.toBe(untrained)
  expect(await page.locator('[data-ghost]').count()).toBe(0)
  const first = await newest().innerText()
  expect(first).toHaveLength('Once there'.length + 56)
  await expect.poll(() => newest().innerText(), { timeout: 60_000 }).not.toBe(first)
  await see('Finished')
  // Each line is of one step, the newest at the top.
  const steps = async () => {
    const labels = await page.locator('.samples li > span').allTextContents()
    expect(labels.pop()).toBe('untrained')
    return labels.map((label) => Number(/^step (\d+)$/.exec(label)?.[1]))
  }
  await expect.poll(async () => (await steps())[0], { timeout: 60_000 }).toBe(70)
  const received = await steps()
  expect(new Set(received).size).toBeGreaterThan(1)
  expect(received).toEqual([...received].sort((a, b) => b - a))
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
    return /character (\d+), .+ attends .+ to character (\d+),/.exec(words!)!.slice(1).map(Number)
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
  expect(await violationsByColours(page)).toEqual(noViolations)

  await prompt.fill('#')
  await page.getByText('The text has no "#"').waitFor()
  await page.getByText('Train on your own text').click()
  await page.getByLabel('Paste a text').fill('too short')
  await page.getByText('it is too short (9 of at least 330 characters)').waitFor()
  await drop('latin.txt', Buffer.from([0xe4, 0xf6, 0xfc]))
  await page.getByText('latin.txt: text: the file is not UTF-8').waitFor()
  await drop('bell.txt', Buffer.from('ding dong bell. '.repeat(30)))
  await page.getByText('480 characters, 10 of at most 256 different ones').waitFor()
  await page.getByRole('button', { name: 'Use this text' }).click()
  await page.getByText('The next run learns this text').waitFor()
  await picture('given')
  await page.getByRole('button', { name: 'Start again' }).click()
  await expect.poll(() => prompt.inputValue(), { timeout: 60_000 }).toBe('ding dong')
}, 240_000)
