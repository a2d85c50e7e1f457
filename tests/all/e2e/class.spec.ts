import type { Page } from 'playwright'
import { expect, test } from 'vitest'
import {
  continuedWithout,
  joined,
  reaches,
  says,
  shapeable,
  stepOf,
} from '../../support/elastic-tabs.ts'
import { press, seeText, statusText, textIn, useFirefox } from '../../support/firefox-pages.ts'
import { loseTab } from '../../support/lose-tab.ts'
import { openInOwnProcess } from '../../support/own-process.ts'
import { button, hashOf, invite, see, seeMembers } from '../../support/page-driver.ts'
import { driveRooms } from '../../support/page-rooms.ts'

// More ranks than can all be linked to each other: several in each tab. Ranks are lost and come without a click, as in a small room.

const { served, browser, openContext, openTab } = driveRooms()
// Firefox logs this for each connection to a tab that has closed.
const openInFirefox = useFirefox((text) => text.startsWith('WebRTC: ICE failed'))
const settings = (steps: number, stepsPerSec = 2) =>
  `?demo=playground&batchSize=96&steps=${steps}&maxStepsPerSec=${stepsPerSec}`

/** Opens tabs of one browser with these numbers of ranks in one room; returns also the link by which another one comes. */
async function openClass(
  ranks: readonly number[],
  query = settings(60),
): Promise<{ pages: Page[]; link: URL }> {
  const context = await openContext()
  const maker = await openTab(context, `${served.localUrl}${query}&ranks=${ranks[0]}`)
  await see(maker, 'Alone in the room')
  const link = new URL(await invite(maker))
  const pages = [maker]
  for (const count of ranks.slice(1)) {
    link.search = `?ranks=${count}`
    pages.push(await openTab(context, link.href))
  }
  const all = ranks.reduce((sum, count) => sum + count, 0)
  await Promise.all(pages.map((page) => seeMembers(page, all)))
  return { pages, link }
}

test('24 ranks in three tabs: one tab is closed, another one comes, and all end with one state', async () => {
  const { pages, link } = await openClass([8, 8, 8])
  const [maker, second, third] = pages as [Page, Page, Page]
  await maker.bringToFront()
  await button(maker, 'Start').click()
  await reaches(maker, 10)
  await second.close()
  for (const page of [maker, third]) await says(page, continuedWithout, 120_000)
  await reaches(maker, (await stepOf(maker)) + 5)
  link.search = '?ranks=4'
  const late = await openTab(maker.context(), link.href)
  await says(late, joined, 120_000)
  const here = [maker, third, late]
  await Promise.all(here.map((page) => see(page, 'Finished', 240_000)))
  const hashes = await Promise.all(here.map(hashOf))
  expect(new Set(hashes).size).toBe(1)
  expect(await maker.locator('#summary').textContent()).toContain('the same on all 20 ranks')
}, 600_000)

test.each([
  ['close', true],
  ['crash', false],
] as const)(
  'the host of 24 ranks is lost by a %s: the others train on, and where exact is %s end with the bits of one rank',
  async (how, exact) => {
    const ends = `&exact=${exact}`
    const [maker, ...others] = (await openClass([8, 8, 8], settings(60) + ends)).pages
    await maker!.bringToFront()
    await button(maker!, 'Start').click()
    await reaches(maker!, 10)
    await loseTab(maker!, how)
    await others[0]!.bringToFront()
    await Promise.all(others.map((page) => see(page, 'Finished', 240_000)))
    const hashes = await Promise.all(others.map(hashOf))
    expect(new Set(hashes).size).toBe(1)
    if (!exact) return
    const { pages } = await openClass([1], settings(60, 60) + ends)
    await pages[0]!.bringToFront()
    await button(pages[0]!, 'Start').click()
    await see(pages[0]!, 'Finished', 240_000)
    expect(await hashOf(pages[0]!)).toBe(hashes[0])
  },
  600_000,
)

test('of 26 ranks six tabs leave within a second, then one crashes and one freezes: the others train on, and who wakes joins', async () => {
  const { pages, link } = await openClass([8, 8, 1, 1, 1, 1, 1, 1], settings(160))
  const [maker, second, ...leavers] = pages as [Page, Page, ...Page[]]
  link.search = '?ranks=2'
  const open = async () => openTab(await openContext(), link.href)
  const crashing = await openInOwnProcess(browser(), open)
  const freezing = await openInOwnProcess(browser(), open)
  try {
    await seeMembers(maker, 26)
    await maker.bringToFront()
    await button(maker, 'Start').click()
    await reaches(maker, 5, 240_000)
    await Promise.all(leavers.map((page) => page.close()))
    for (const page of [maker, second]) await says(page, continuedWithout, 120_000)
    await reaches(maker, (await stepOf(maker)) + 3)
    crashing.signal('SIGKILL')
    freezing.signal('SIGSTOP')
    await says(maker, /^16 ranks /, 120_000)
    await reaches(maker, (await stepOf(maker)) + 3)
    freezing.signal('SIGCONT')
    await says(freezing.page, joined, 120_000)
    const here = [maker, second, freezing.page]
    await Promise.all(here.map((page) => see(page, 'Finished', 240_000)))
    expect(new Set(await Promise.all(here.map(hashOf))).size).toBe(1)
  } finally {
    freezing.signal('SIGCONT')
  }
}, 900_000)

test('the others of 24 ranks continue without eight whose connection turns slow, which say why and join again', async () => {
  const { pages, link } = await openClass(
    [8, 8],
    '?demo=picture&batchSize=96&steps=100000&maxStepsPerSec=2',
  )
  const [maker, second] = pages as [Page, Page]
  link.search = '?ranks=8'
  const slow = await (await openContext()).newPage()
  const turn = await shapeable(slow)
  await slow.goto(link.href)
  await seeMembers(maker, 24)
  await maker.bringToFront()
  await button(maker, 'Start').click()
  await reaches(maker, 10, 240_000)
  // A step's gradients, 70 KB, take 9 s. As in a router a few packets wait: else what has ended goes on to fill the connection.
  await turn({ uploadThroughput: 8000, packetQueueLength: 30 })
  for (const page of [maker, second]) await says(page, continuedWithout, 120_000)
  await says(maker, /^16 ranks /)
  // Its eight ranks are linked again over that connection first.
  await says(slow, /^This tab waits: its connection carrie[sd] /, 180_000)
  await reaches(maker, (await stepOf(maker)) + 3)
  await turn({})
  await says(slow, joined, 240_000)
  await button(maker, 'Stop').click()
  await Promise.all([maker, second, slow].map((page) => see(page, 'Stopped')))
}, 900_000)

test('a tab of Firefox with eight of 24 ranks trains to the same state', async () => {
  const { pages, link } = await openClass([8, 8])
  const [maker, second] = pages as [Page, Page]
  link.search = '?ranks=8'
  const guest = await openInFirefox(link.href)
  await press(guest, 'Lab')
  await seeMembers(maker, 24)
  await maker.bringToFront()
  await button(maker, 'Start').click()
  await reaches(maker, 10)
  await second.close()
  await says(maker, continuedWithout, 120_000)
  await see(maker, 'Finished', 240_000)
  await seeText(guest, statusText, /Finished/)
  expect(await textIn(guest, '[data-testid=param-hash]')).toBe(await hashOf(maker))
}, 600_000)
