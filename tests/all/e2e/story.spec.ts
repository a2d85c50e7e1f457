import { join } from 'node:path'
import type { Page } from 'playwright'
import { expect, it } from 'vitest'
import { mainThreadDuring } from '../../support/main-thread.ts'
import {
  button,
  drivePages,
  hashOf,
  invite,
  members,
  pictures,
  see,
  seeMembers,
  seeRun,
  whenBad,
} from '../../support/page-driver.ts'

/** A lesson on the real page, in a run that a lost tab ends: five tabs, of which one is reloaded and one closed, until four have equal weights. */

const driver = drivePages()

const stepOf = async (page: Page) =>
  Number(await page.getByRole('progressbar').getAttribute('aria-valuenow'))
/** The losses in the chart's label: the first, and the newest with its step. */
async function lossesOf(page: Page): Promise<{ first: number; newest: number; step: number }> {
  const words = await page.locator('.chart[data-kind="loss"]').getAttribute('aria-label')
  const found = /: ([\d.]+) at the first, ([\d.]+) at step (\d+)/.exec(words ?? '')
  const [first, newest, step] = found?.slice(1).map(Number) ?? []
  return { first, newest, step: step ?? 0 }
}
const nameOf = (page: Page) => page.getByRole('textbox', { name: 'This tab' }).inputValue()
const wordsOf = async (page: Page) => (await page.locator('.status').textContent())!
const picture = async (page: Page, name: string) => {
  await page.bringToFront() // a tab behind another draws a frame a second
  await page.screenshot({ path: join(pictures, `story-${name}.png`), fullPage: true })
}

it('five tabs learn, pause and continue; one is reloaded, one closed; four finish with equal weights', async () => {
  const { served, openTab } = driver
  const maker = await openTab(
    `${served.localUrl}?demo=playground&data=xor&steps=100000&elastic=false`,
  )
  await see(maker, 'Alone in the room')
  const link = await invite(maker)
  const guests = await Promise.all(Array.from({ length: 4 }, () => openTab(link)))
  const pages = [maker, ...guests]
  await Promise.all(pages.map((page) => seeMembers(page, 5)))
  await see(maker, 'Ready with 5 ranks')
  await maker.bringToFront()

  // The loss falls.
  await button(maker, 'Start').click()
  await expect
    .poll(async () => (await lossesOf(maker)).step, { timeout: 60_000 })
    .toBeGreaterThan(0)
  const early = await lossesOf(maker)
  expect(early.first).toBeGreaterThan(0)
  const hasFallen = async () => {
    const { newest, step } = await lossesOf(maker)
    return step > early.step && newest < 0.7 * early.first
  }
  await expect.poll(hasFallen, { timeout: 60_000 }).toBe(true)

  // In a pause nobody steps on, not even while another tab comes.
  await button(maker, 'Pause').click()
  await Promise.all(pages.map((page) => see(page, 'Paused')))
  const paused = await Promise.all(pages.map(stepOf))
  expect(paused[0]).toBeGreaterThan(0)
  expect(new Set(paused).size).toBe(1)
  for (const page of pages) expect(await wordsOf(page)).toContain(`step ${paused[0]}`)
  await picture(maker, 'paused')
  for (const more of [1, 2]) {
    await button(maker, 'One step').click()
    for (const page of pages)
      await expect.poll(() => stepOf(page), { timeout: 30_000 }).toBe(paused[0] + more)
  }
  await Promise.all(pages.map((page) => see(page, 'Paused')))
  const comer = await openTab(link)
  await see(comer, 'A run is in progress')
  await comer.close()
  await Promise.all(pages.map((page) => seeMembers(page, 5)))
  expect(await Promise.all(pages.map(stepOf))).toEqual(paused.map((step) => step + 2))
  await maker.bringToFront()
  await button(maker, 'Resume').click()
  for (const page of pages)
    await expect.poll(() => stepOf(page), { timeout: 30_000 }).toBeGreaterThan(paused[0])
  // Drawing leaves the page's thread nearly idle, in the tab in front too: goal 30 ms a second, here with what others do on the machine.
  const busy = await mainThreadDuring(maker, () =>
    expect
      .poll(() => stepOf(maker), { timeout: 30_000, interval: 500 })
      .toBeGreaterThan(paused[0] + 250),
  )
  expect(busy, 'ms of the main thread in a second').toBeLessThan(60)

  // A reload ends the run; the others say who is gone, and the reloaded tab waits.
  const reloaded = pages[2]
  const name = await nameOf(reloaded)
  await reloaded.reload()
  const others = pages.filter((page) => page !== reloaded)
  await Promise.all(others.map((page) => see(page, /was lost/)))
  for (const page of others) expect(await wordsOf(page)).toContain(name)
  await see(reloaded, /^Waiting for .+ to start$/)
  await Promise.all(pages.map((page) => seeMembers(page, 5)))
  // It comes back with its name, as the newest member.
  expect(await members(maker).locator('strong').nth(4).textContent()).toBe(name)

  // The run was saved in the pause at the latest: all five continue from there, until one is closed, and the others show that within a second.
  const goOn = maker.getByRole('button', { name: /^Resume from step \d+$/ })
  const savedStep = Number(/\d+/.exec((await goOn.textContent())!)![0])
  expect(savedStep).toBeGreaterThanOrEqual(paused[0])
  await goOn.click()
  for (const page of pages) {
    await see(page, 'Training')
    await expect.poll(() => stepOf(page), { timeout: 30_000 }).toBeGreaterThan(savedStep)
  }
  const closed = pages[4]
  const closedName = await nameOf(closed)
  const rest = pages.filter((page) => page !== closed)
  const received = rest.map(whenBad)
  await Promise.all(received.map((one) => one.isWatching))
  const closedAtMs = Date.now()
  await closed.close()
  for (const { shown } of received) {
    const { text, atMs } = await shown
    console.log(`told after ${atMs - closedAtMs} ms: ${text}`)
    expect(text).toContain(closedName)
    expect(atMs - closedAtMs).toBeLessThan(1000)
  }
  await Promise.all(rest.map((page) => seeMembers(page, 4)))

  // And with the four that are left, to the end.
  await maker.getByText('More settings', { exact: true }).click()
  await maker.getByLabel('Steps', { exact: true }).fill('60')
  await button(maker, 'Start again').click()
  await Promise.all(rest.map((page) => see(page, 'Finished', 90_000)))
  const hashes = await Promise.all(rest.map(hashOf))
  expect(hashes[0]).toMatch(/^[0-9a-f]{8,}$/)
  expect(new Set(hashes).size).toBe(1)
  await seeRun(maker, 3)
  expect(await maker.locator('#summary').textContent()).toContain('the same on all 4 ranks')
  await picture(maker, 'finished')
})
