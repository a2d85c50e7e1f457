import { writeFile } from 'node:fs/promises'
import type { Page } from 'playwright'
import { describe, expect, it } from 'vitest'
import { ensureBuilt } from '../../../node/build.ts'
import { lanAddresses, ownCertificate } from '../../../node/certificate.ts'
import { serve } from '../../../node/serve.ts'
import { says } from '../../support/elastic-tabs.ts'
import { smallFolder } from '../../support/idx-files.ts'
import {
  button,
  downloadWeights,
  invite,
  members,
  see,
  seeMembers,
  seeRun,
  showInstruments,
} from '../../support/page-driver.ts'
import { driveRooms } from '../../support/page-rooms.ts'

// tests/e2e/page.spec.ts has the rest.

const { served, openContext, openTab, openRoom, openBlocked, actOn, picture, inFolder } =
  driveRooms()

/** What the reading "State hash" says. */
const stateHash = async (page: Page) => {
  const reading = page.locator('.readout').filter({ hasText: 'State hash' })
  const [value, note] = await Promise.all(
    ['.value', '.note'].map((part) => reading.locator(part).innerText()),
  )
  return { value, note }
}

/** A maker, a tab that no other one can reach, and a third one, in a room with these settings. */
async function openBlockedRoom(settings: string) {
  const first = await openContext()
  const maker = await openTab(
    first,
    `${served.localUrl}?demo=playground&transport=webrtc${settings}`,
  )
  await see(maker, 'Alone in the room')
  const link = await invite(maker)
  const blocked = await openTab(await openBlocked(), link)
  await seeMembers(maker, 2)
  const third = await openTab(first, link)
  await Promise.all([maker, blocked, third].map((page) => seeMembers(page, 3)))
  return { maker, blocked, third }
}

// Three software adapters on two cores take their time.
describe('a room', { timeout: 240_000 }, () => {
  it('tabs that share nothing but the network train over WebRTC, and with exact show the same state; the link carries the choice', async () => {
    const pages = await openRoom(2, '?transport=webrtc&steps=6&model=cnn&exact=true', false)
    expect(await invite(pages[0])).toContain('/?transport=webrtc#key=')
    await button(pages[0], 'Start').click()
    await Promise.all(pages.map((page) => see(page, 'Finished', 110_000)))
    const hashes = await Promise.all(
      pages.map((page) => page.getByTestId('param-hash').textContent()),
    )
    expect(new Set(hashes).size).toBe(1)
    const states = await Promise.all(pages.map(stateHash))
    expect(states[0].value).toMatch(/^[0-9a-f]{8}$/)
    expect(states[0].note).toBe('before step 6, the same on all ranks')
    expect(states[1]).toEqual(states[0])
    expect(await pages[1].locator('#ring').textContent()).toContain('WebRTC data channels')
    expect(await pages[1].locator('#summary').textContent()).toMatch(/[\d.]+ [KM]iB/)
  })

  it('trains again over the links that it measured once, to the same bits', async () => {
    const pages = await openRoom(2, '?epochs=1&steps=12&seed=3')
    const [maker, second] = pages
    await button(maker, 'Start').click()
    await Promise.all(pages.map((page) => see(page, 'Finished', 90_000)))
    const hash = await maker.getByTestId('param-hash').textContent()
    const { record } = await downloadWeights(maker)
    await button(maker, 'Start again').click()
    await maker.locator('#summary').getByText('Run 2').waitFor({ timeout: 90_000 })
    await seeRun(second, 2)
    await see(second, 'Finished', 90_000)
    // Another rate might have given other buckets, and so other sums.
    expect((await downloadWeights(maker)).record.links).toEqual(record.links)
    expect(await maker.getByTestId('param-hash').textContent()).toBe(hash)
  })

  it('falls back to the server where WebRTC brings no connection about, and shows which way a link goes', async () => {
    const relaying = await serve({
      root: await ensureBuilt(),
      port: 0,
      signaling: { relay: true },
    })
    try {
      const maker = await openTab(
        await openContext(),
        `${relaying.localUrl}?transport=fallback&steps=6`,
      )
      await see(maker, 'Alone in the room')
      const link = await invite(maker)
      expect(link).toContain('/?transport=fallback#key=')
      const second = await openTab(await openBlocked(), link)
      await seeMembers(maker, 2)
      const ring = (page: Page) => page.locator('#ring').textContent()
      expect(await ring(maker)).toContain('WebRTC, else through the server.')
      await button(maker, 'Start').click()
      await Promise.all([maker, second].map((page) => see(page, 'Finished', 110_000)))
      for (const page of [maker, second]) {
        expect(await ring(page)).toContain('Through the server, end-to-end encrypted.')
        expect(await page.locator('#ring .edge[data-kind=relay]').count()).toBe(2)
        expect(await page.locator('#summary').textContent()).toMatch(/[\d.]+ [KM]iB/)
      }
    } finally {
      await relaying.close()
    }
  })

  it('who cannot be reached is named before Start, and again when it failed; the maker starts without it', async () => {
    const { maker, blocked, third } = await openBlockedRoom('&steps=4&elastic=false')
    const name = await members(maker).nth(1).locator('strong').textContent()
    await see(maker, `${name} cannot be reached`)
    await see(blocked, / and .+ cannot be reached$/)
    await members(maker).nth(2).getByText(`cannot reach ${name}`).waitFor()
    await members(maker)
      .nth(2)
      .getByText(/^[\d.]+ ms to /)
      .waitFor()
    await picture(maker, 'lobby-unreachable')

    await button(maker, 'Start').click()
    await maker.getByText('Error details').waitFor()
    // The error is that of the first to notice: that may be two of the others.
    await see(maker, /cannot be reached$|cannot reach each other$/)
    await button(maker, `Start without ${name}`).click()
    await Promise.all([maker, third].map((page) => see(page, 'Finished', 60_000)))
    await blocked.locator('.notice[data-kind="removed"]').waitFor()
    await members(third)
      .nth(0)
      .getByText(/^[\d.]+ ms to /)
      .waitFor()
    expect(await members(third).count()).toBe(2)
  })

  it('an elastic run begins without a tab that cannot be reached, which hears why', async () => {
    const { maker, blocked, third } = await openBlockedRoom('&steps=300&maxStepsPerSec=10')
    await button(maker, 'Start').click()
    await says(blocked, /The run continues without this tab/)
    await Promise.all([maker, third].map((page) => see(page, 'Finished', 90_000)))
    expect(await maker.locator('#summary').textContent()).toContain('the same on all 2 ranks')
  })

  it('guests can neither pause nor stop; the maker removes one in mid-run, and stops the run', async () => {
    const pages = await openRoom(3, '?steps=100000&elastic=false')
    const [maker, second, third] = pages
    await button(maker, 'Start').click()
    await Promise.all(pages.map((page) => see(page, 'Training', 60_000)))
    await maker.locator('.chart[aria-label*="at step"]').waitFor()
    await picture(maker, 'training')
    expect(await third.locator('.status').textContent()).toMatch(
      /Only .+ can pause or stop the run/,
    )
    expect(await button(third, 'Stop').count()).toBe(0)

    await actOn(maker, 2, 'Remove and end the run')
    const rest = [maker, second]
    await Promise.all(rest.map((page) => see(page, /^Rank 2 \(.+\) was removed$/)))
    await third.locator('.notice[data-kind="removed"]').waitFor()
    await picture(maker, 'member-removed')

    await button(maker, 'Start again').click()
    await Promise.all(rest.map((page) => see(page, 'Training', 60_000)))
    await button(maker, 'Stop').click()
    await Promise.all(rest.map((page) => see(page, 'Stopped')))
    // It was saved at the step that it came to.
    const stopped = (await maker.locator('.status').textContent())!
    const [, at] = /stopped the run at step (\d+)\./.exec(stopped) ?? []
    expect(stopped).toContain(`Resume from step ${at},`)
    await picture(maker, 'stopped')
  })

  it('the maker removes a tab and locks: those who can move to a new link and train, the old link leads to the others', async () => {
    const pages = await openRoom(4, '?steps=6')
    const [maker, second, third, fourth] = pages
    const before = await invite(maker)
    expect(new URL(third.url()).hash).toBe(new URL(before).hash)
    // No new connection of this tab reaches the server.
    await fourth.evaluate(() => {
      class NoConnection {
        readonly readyState = 3
        onclose: ((event: { code: number; reason: string }) => void) | null = null
        constructor() {
          setTimeout(() => this.onclose?.({ code: 1006, reason: '' }))
        }
        close(): void {
          // There is nothing to close.
        }
      }
      window.WebSocket = NoConnection as unknown as typeof WebSocket
    })
    await actOn(maker, 2, 'Remove and lock')
    await third.locator('.notice[data-kind="removed"]').waitFor()
    await see(maker, 'Ready with 2 ranks')
    await expect.poll(() => new URL(second.url()).hash).not.toBe(new URL(before).hash)
    await see(second, /^Waiting for .+ to start$/)
    await fourth.getByText('this tab is still in the old room').waitFor()
    await see(fourth, 'Alone in the room')
    const after = await invite(maker)
    expect(after).not.toBe(before)
    for (const page of [maker, second]) {
      expect(new URL(page.url()).hash).toBe(new URL(after).hash)
      expect(await invite(page)).toContain(new URL(after).hash)
    }

    await button(third, 'Rejoin').click()
    await see(third, /^Waiting for .+ to start$/)
    expect(new URL(third.url()).hash).toBe(new URL(before).hash)
    expect(await members(maker).count()).toBe(2)

    await button(maker, 'Start').click()
    await Promise.all([maker, second].map((page) => see(page, 'Finished', 90_000)))
    // The host stays the host of the new room after a reload.
    await maker.reload()
    await see(maker, 'Ready with 2 ranks')
  })

  it('trains on the data folder that the server was given', async () => {
    for (const [name, bytes] of Object.entries(smallFolder(200, 50))) {
      await writeFile(inFolder(name), bytes)
    }
    const own = await serve({
      root: await ensureBuilt(),
      port: 0,
      mounts: { '/data/': inFolder('.') },
    })
    try {
      const page = await openTab(await openContext(), `${own.localUrl}?steps=5&batchSize=32`)
      await see(page, 'Alone in the room')
      await page.getByLabel('Data', { exact: true }).selectOption('IDX files at an address…')
      expect(await page.getByLabel('Address of the data').inputValue()).toBe('/data/')
      await button(page, 'Start').click()
      await see(page, 'Finished', 60_000)
      expect(await page.locator('#summary').textContent()).toContain('Steps5')
      expect(new URL(page.url()).searchParams.get('data')).toBe('/data/')
    } finally {
      await own.close()
    }
  })

  it('served to other machines, a page opened as localhost gives out a link that they can open, and ticks its result off', async () => {
    expect(lanAddresses(), 'this machine is in no network: connect it to one').not.toEqual([])
    const root = await ensureBuilt()
    const certificate = await ownCertificate({ folders: [inFolder('.tabring')] })
    const own = await serve({ root, port: 0, host: true, certificate })
    try {
      const query = '?demo=playground&data=spiral'
      const maker = await openTab(await openContext(), `${own.localUrl}${query}`)
      await see(maker, 'Alone in the room')
      await expect.poll(() => invite(maker)).toContain(own.lanUrls[0])
      const room = await maker.locator('#room').textContent()
      expect(room).toContain('or on other machines')
      expect(room).not.toContain('npm start')
      await picture(maker, 'host')
      const here = await maker.getByText('Open another tab here').getAttribute('href')
      expect(here).toContain(own.localUrl)
      const other = await openTab(await openContext(), await invite(maker))
      await Promise.all([maker, other].map((page) => seeMembers(page, 2)))
      expect(await invite(other)).toBe(await invite(maker))
      await button(maker, 'Start').click()
      for (const page of [maker, other]) {
        await see(page, 'Finished')
        await page.locator('.expected [data-is=reached]').waitFor()
      }
    } finally {
      await own.close()
    }
  })

  it('a page restored by the Back button enters its room again', async () => {
    const [maker] = await openRoom(1, '')
    const link = maker.url()
    // What a browser with a back-forward cache does; headless Chromium keeps no page that has a socket.
    await maker.evaluate(() => {
      window.dispatchEvent(new PageTransitionEvent('pagehide', { persisted: true }))
      Object.assign(window, { isOld: true })
    })
    await Promise.all([
      maker.waitForEvent('load'),
      maker.evaluate(() =>
        window.dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true })),
      ),
    ])
    await see(maker, 'Alone in the room')
    expect(await maker.evaluate(() => 'isOld' in window)).toBe(false)
    expect(maker.url()).toBe(link)
  })

  it('a browser that blocks storage only forgets the name', async () => {
    const context = await openContext()
    await context.addInitScript(() =>
      Object.defineProperty(window, 'sessionStorage', {
        get: () => {
          throw new DOMException('denied', 'SecurityError')
        },
      }),
    )
    const page = await openTab(context, served.localUrl)
    await showInstruments(page)
    await see(page, 'Alone in the room')
    const name = page.getByRole('textbox', { name: 'This tab' })
    await name.fill('Ada')
    await name.press('Enter')
    await members(page).filter({ hasText: 'Ada' }).waitFor()
  })

  it('a tab whose worker ends between runs shows it and leaves the room', async () => {
    const [maker, second] = await openRoom(2, '')
    await second.workers()[0].evaluate(() => self.close())
    await second.locator('.notice[data-kind="worker"]').waitFor()
    await see(maker, 'Alone in the room')
  })

  it('the server goes away: it is said, and nothing can be started', async () => {
    const own = await serve({ root: await ensureBuilt(), port: 0 })
    const page = await openTab(await openContext(), own.localUrl)
    await showInstruments(page)
    await see(page, 'Alone in the room')
    await own.close()
    await see(page, 'The server is gone')
    expect(await button(page, 'Start').count()).toBe(0)
    await button(page, 'Reload').waitFor()
    await picture(page, 'server-lost')
  })
})
