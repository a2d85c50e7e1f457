import { join } from 'node:path'
import type { Locator, Page } from 'playwright'
import { describe, expect, it } from 'vitest'
import { formatFragment, newRoomLink } from '../../../src/peer/room/secret.ts'
import {
  drivePages,
  hashOf,
  members,
  pictures,
  see,
  seeMembers,
} from '../../support/page-driver.ts'

/** Rooms as a class makes them: many tabs, several ranks in one. */

const { served, openTab } = drivePages()

const start = (page: Page) => page.getByRole('button', { name: 'Start', exact: true })
/** The ranks that a member has a round trip to, as in `rank 3`. */
const neighboursOf = async (member: Locator) =>
  (await member.locator('.fact').allTextContents()).flatMap((fact) => {
    const to = /^[\d.]+ ms to (?!the server)(.+)$/.exec(fact)?.[1]
    return to ? [to] : []
  })
const picture = (page: Page, name: string) =>
  page.screenshot({ path: join(pictures, `${name}.png`), fullPage: true })

describe('a room of a class', { timeout: 240_000 }, () => {
  it('8 tabs that open at once are in one room, measure their speeds and links, and train', async () => {
    // The first to come makes the room.
    const link = `${served.localUrl}?demo=playground&steps=20&batchSize=64${formatFragment(newRoomLink())}`
    const openedAtMs = performance.now()
    const pages = await Promise.all(Array.from({ length: 8 }, () => openTab(link)))
    await Promise.all(pages.map((page) => seeMembers(page, 8)))
    const tookMs = performance.now() - openedAtMs
    console.log(`8 tabs were in one room ${Math.round(tookMs)} ms after the first was opened`)

    const starts = await Promise.all(pages.map((page) => start(page).count()))
    expect([...starts].sort()).toEqual([0, 0, 0, 0, 0, 0, 0, 1])
    const maker = pages[starts.indexOf(1)]
    await maker.bringToFront() // a tab behind another draws a frame a second
    for (const member of await members(maker).all()) {
      await member.getByText('GFLOP/s').waitFor()
      await expect.poll(() => neighboursOf(member), { timeout: 30_000 }).toHaveLength(2)
    }
    expect((await neighboursOf(members(maker).nth(3))).sort()).toEqual(['rank 2', 'rank 4'])
    await picture(maker, 'lobby-eight')

    await start(maker).click()
    await Promise.all(pages.map((page) => see(page, 'Finished', 150_000)))
    expect(new Set(await Promise.all(pages.map(hashOf))).size).toBe(1)
    // All are linked to all: 8 links of the ring, and 20 beside it.
    expect(await maker.locator('#ring .edge').count()).toBe(8)
    const chords = await maker
      .locator('#ring .chords')
      .evaluateAll((paths) => paths.map((path) => Number(path.getAttribute('data-links'))))
    expect(chords.reduce((sum, links) => sum + links, 0)).toBe(20)
  })

  it('one tab with 3 ranks trains over ports to equal hashes; a worker that ends is reported by its rank', async () => {
    const page = await openTab(`${served.localUrl}?ranks=3&steps=4&batchSize=12&elastic=false`)
    await see(page, 'Alone in the room')
    await seeMembers(page, 3)
    const room = page.locator('#room')
    expect(await room.textContent()).toContain('1 tab, 3 ranks')
    expect(await room.textContent()).toContain('one tab, 3 ranks')
    const own = await members(page).nth(0).locator('strong').textContent()
    expect(await members(page).locator('strong').allTextContents()).toEqual([
      own,
      'Rank 1',
      'Rank 2',
    ])
    await start(page).click()
    await see(page, 'Finished', 90_000)
    expect(await page.locator('#summary').textContent()).toContain('the same on all 3 ranks')
    expect(await page.locator('#ring').textContent()).toContain('MessagePorts')
    expect(page.workers()).toHaveLength(3)

    await page.getByText('More settings').click()
    await page.getByLabel('Steps', { exact: true }).fill('100000')
    await page.getByRole('button', { name: 'Start again' }).click()
    await see(page, 'Training', 60_000)
    await members(page).nth(0).getByText('to neighbours').waitFor()
    await picture(page, 'three-ranks-training')
    // The second and third worker are of the ranks that the page does not show.
    await page.workers()[2].evaluate(() => self.close())
    await page.locator('.status[data-tone=bad]').waitFor()
    const text = await page.locator('.status').textContent()
    const lost = /· [23]/.exec(text!)![0]
    expect(text).toMatch(/rank [12] \(.+ · [23]\)/)
    expect(text).toContain(`${lost}, a rank of this tab, has left the room`)
    await seeMembers(page, 2)
    await picture(page, 'one-of-three-ranks-lost')
  })

  it('2 tabs with 2 ranks each train together; removing or closing one takes both of its ranks away', async () => {
    const maker = await openTab(`${served.localUrl}?ranks=2&steps=4&batchSize=12`)
    await see(maker, 'Alone in the room')
    const link = new URL(await maker.locator('#invite').inputValue())
    expect(link.search, 'how many ranks a tab has is its own').toBe('')
    link.search = '?ranks=2'
    const second = await openTab(link.href)
    await Promise.all([maker, second].map((page) => seeMembers(page, 4)))
    expect(await maker.locator('#room').textContent()).toContain('2 tabs, 4 ranks')
    await see(maker, 'Ready with 4 ranks')
    await maker.bringToFront()
    await start(maker).click()
    await Promise.all([maker, second].map((page) => see(page, 'Finished', 90_000)))
    expect(await hashOf(second)).toBe(await hashOf(maker))
    expect(await maker.locator('#summary').textContent()).toContain('the same on all 4 ranks')
    await members(maker).nth(2).locator('.member-acts summary').click()
    await maker.getByRole('button', { name: 'Remove', exact: true }).click()
    await seeMembers(maker, 2)
    await second.locator('.notice[data-kind=removed]').waitFor()
    // What it has trained stays with it.
    expect(await second.getByTestId('param-hash').textContent()).toBe(await hashOf(maker))
    await second.getByRole('button', { name: 'Rejoin' }).click()
    await Promise.all([maker, second].map((page) => seeMembers(page, 4)))
    await second.close()
    await seeMembers(maker, 2)
  })
})
