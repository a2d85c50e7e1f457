import type { Page } from 'playwright'
import { expect, test } from 'vitest'
import { button, drivePages, see, showInstruments } from '../../support/page-driver.ts'

/** The built page as a visitor sees it first. */
const driver = drivePages()

const step = async (page: Page): Promise<number> =>
  Number(/\d+/.exec(await page.locator('.first-progress').innerText())?.[0] ?? 0)
const seats = (page: Page) => page.locator('.first-seat b').allInnerTexts()

test('the first screen trains, closes the ring when a rank is lost, and takes a new one in', async () => {
  const page = await driver.openTab(driver.served.localUrl)
  await page.getByText('A, B and C are three ranks in this tab.').waitFor()
  await page.locator('.first-plane [data-has-field="true"]').waitFor()
  await page.getByText('B is lost').waitFor({ timeout: 60_000 })
  await page.getByText('A and C share the points, and continue.').waitFor()
  expect(await seats(page)).toEqual(['A', 'C'])
  await page.getByText('D has joined').waitFor({ timeout: 60_000 })
  expect(await seats(page)).toEqual(['A', 'C', 'D'])
  await page.getByText(/Learned: right on (9\d|100) %/).waitFor({ timeout: 60_000 })
  await page.reload()
  await page.getByText('A, B and C are three ranks in this tab.').waitFor()
})

test('the first screen rests without motion and when it is paused', async () => {
  const context = await driver.openContext({ reducedMotion: 'reduce' })
  const page = await driver.openTab(driver.served.localUrl, context)
  await button(page, 'Play').waitFor()
  expect(page.workers().length).toBeLessThan(4)
  await button(page, 'Play').click()
  await expect.poll(() => step(page), { timeout: 30_000 }).toBeGreaterThan(3)
  await button(page, 'Pause').click()
  await expect
    .poll(async () => {
      const before = await step(page)
      await page.waitForTimeout(300)
      return (await step(page)) - before
    })
    .toBe(0)
  await button(page, 'Play').click()
  const before = await step(page)
  await expect.poll(() => step(page)).toBeGreaterThan(before)
  await showInstruments(page)
  await see(page, 'Alone in the room')
  expect(await page.evaluate(() => document.activeElement?.tagName)).toBe('H2')
})

test('the first screen gives way when training starts and when another tab comes', async () => {
  const context = await driver.openContext()
  const page = await driver.openTab(driver.served.localUrl, context)
  await expect.poll(() => step(page), { timeout: 30_000 }).toBeGreaterThan(3)
  const adding = context.waitForEvent('page')
  await page.getByRole('link', { name: 'Add a tab' }).click()
  const added = await adding
  await see(page, 'Ready with 2 ranks')
  await see(added, 'Waiting for')
  expect(await page.locator('.first').count()).toBe(0)
  await added.close()

  const other = await driver.openTab(driver.served.localUrl)
  await other.locator('button.go:enabled', { hasText: 'Train here' }).click()
  await see(other, 'Training')
  expect(await other.locator('.first').count()).toBe(0)
  await other.reload()
  await other.locator('.status').waitFor()
  expect(await other.locator('.first').count()).toBe(0)
})

test('a short code that the host reads aloud takes a tab of another browser into the room', async () => {
  const host = await driver.openTab(driver.served.localUrl, await driver.openContext())
  await button(host, 'Invite people').click()
  await button(host, 'Short code').click()
  const code = host.getByLabel('Short code').filter({ hasText: /^\w{3} \w{3}$/ })
  await code.waitFor()
  const text = await code.innerText()
  const guest = await driver.openTab(driver.served.localUrl, await driver.openContext())
  await button(guest, 'Enter a code').click()
  const enter = async (typed: string) => {
    await guest.getByLabel('Code of the room').fill(typed)
    await button(guest, 'Join').click()
  }
  await expect.poll(() => guest.evaluate(() => document.activeElement?.id)).toBe('short-code')
  await enter('123')
  await guest.getByText('A code has six to eight letters and digits').waitFor()
  await enter(`${text.slice(0, -1)}${text.endsWith('2') ? '3' : '2'}`)
  await guest.getByText('Nobody shows this code now').waitFor()
  await enter(text.toLowerCase())
  await see(host, 'Ready with 2 ranks')
  await see(guest, 'Waiting for')
  expect(await guest.evaluate(() => location.hash)).toBe(await host.evaluate(() => location.hash))
})
