import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { BrowserContext, Page } from 'playwright'
import { afterAll, beforeAll } from 'vitest'
import {
  drivePages,
  invite,
  members,
  photograph,
  see,
  seeMembers,
  showInstruments,
} from './page-driver.ts'

/** Serves the built page to the tests of this file, and drives rooms of tabs as people do. */
export function driveRooms() {
  /** Certificates and data. */
  let folder: string
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'tabring-page-'))
  })
  afterAll(async () => {
    if (folder) await rm(folder, { recursive: true })
  })
  const driver = drivePages()
  const { served, contexts, openContext } = driver

  const openTab = (context: BrowserContext, url: string) => driver.openTab(url, context)
  /** Opens what the maker can do with a member, and does one of it. */
  const actOn = async (page: Page, index: number, act: string) => {
    const member = members(page).nth(index)
    await member.locator('.member-acts summary').click()
    await member.getByRole('button', { name: act, exact: true }).click()
  }
  const lossWords = (page: Page) =>
    page.locator('.chart[data-kind="loss"]').getAttribute('aria-label')
  const picture = (page: Page, name: string) =>
    photograph(page, name, {
      looks: [
        { width: 1400, colorScheme: 'light' },
        { width: 390, colorScheme: 'light' },
      ],
    })

  /** A room of `count` tabs: in one browser profile, or each in its own. */
  async function openRoom(count: number, query: string, isShared = true): Promise<Page[]> {
    const first = await openContext()
    const maker = await openTab(first, `${served.localUrl}${query}`)
    if (query === '') await showInstruments(maker)
    await see(maker, 'Alone in the room')
    const link = await invite(maker)
    const pages = [maker]
    for (let i = 1; i < count; i++) {
      pages.push(await openTab(isShared ? first : await openContext(), link))
      await seeMembers(maker, i + 1)
    }
    await Promise.all(pages.map((page) => seeMembers(page, count)))
    return pages
  }

  /** A profile as behind a firewall: it finds no address to connect from. */
  async function openBlocked(): Promise<BrowserContext> {
    const blocked = await openContext()
    await blocked.addInitScript(() => {
      const Original = RTCPeerConnection
      globalThis.RTCPeerConnection = class extends Original {
        constructor(given?: RTCConfiguration) {
          super({ ...given, iceTransportPolicy: 'relay' })
        }
      }
    })
    return blocked
  }
  return {
    served,
    /** There once tests run. */
    browser: () => driver.browser,
    contexts,
    openContext,
    openTab,
    openRoom,
    openBlocked,
    actOn,
    lossWords,
    picture,
    inFolder: (name: string) => join(folder, name),
  }
}
