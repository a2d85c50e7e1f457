import type { Page } from 'playwright'
import { expect, test } from 'vitest'
import { button, hashOf, invite, see } from '../../support/page-driver.ts'
import { driveRooms } from '../../support/page-rooms.ts'

// A room trains on, without a click, when tabs close, crash and come.

const { openRoom, openTab, picture } = driveRooms()
const query = '?epochs=1&steps=240&maxStepsPerSec=20&elastic=true'

const stepOf = async (page: Page): Promise<number> =>
  Number.parseInt((await page.locator('.progress-words').textContent()) ?? '0', 10)

const reaches = (page: Page, step: number) =>
  expect.poll(() => stepOf(page), { timeout: 90_000 }).toBeGreaterThanOrEqual(step)

const words = (page: Page) => page.locator('.status .words p').first().textContent()

test.each([
  ['of one browser, by ports', true],
  ['of three profiles, by WebRTC', false],
])(
  'three tabs %s: one is closed, and the others train on',
  async (_how, isShared) => {
    const pages = await openRoom(3, query, isShared)
    await button(pages[0], 'Start').click()
    await reaches(pages[0], 60)
    await pages[1].close()
    const closedAtMs = Date.now()
    const others = [pages[0], pages[2]]
    await expect
      .poll(() => words(pages[0]), { timeout: 30_000 })
      .toMatch(/left: the run continued from step 50\.$/)
    console.log(`trains on ${Date.now() - closedAtMs} ms after the tab closed`)
    await Promise.all(others.map((page) => see(page, 'Finished', 120_000)))
    const hashes = await Promise.all(others.map(hashOf))
    expect(hashes[1]).toBe(hashes[0])
  },
  240_000,
)

test('a tab that opens the link joins the run; another crashes; the rest finish', async () => {
  const pages = await openRoom(2, query)
  await button(pages[0], 'Start').click()
  await reaches(pages[0], 30)
  const late = await openTab(pages[0].context(), await invite(pages[0]))
  await expect
    .poll(() => words(late), { timeout: 60_000 })
    .toMatch(/This tab joined after step \d+\.$/)
  await expect
    .poll(() => words(pages[0]))
    .toMatch(/^3 ranks .* joined: the run continued from step \d+\.$/)
  await picture(pages[0], 'elastic')
  const crashed = pages[1].waitForEvent('crash')
  await pages[1].goto('chrome://crash').catch(() => undefined) // never answers
  await crashed
  await Promise.all([pages[0], late].map((page) => see(page, 'Finished', 120_000)))
  expect(await hashOf(late)).toBe(await hashOf(pages[0]))
}, 240_000)
