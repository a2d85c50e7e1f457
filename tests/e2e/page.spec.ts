import { mkdirSync } from 'node:fs'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Browser, BrowserContext, Page } from 'playwright'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { ensureBuilt } from '../../node/build.ts'
import { lanAddresses, ownCertificate } from '../../node/certificate.ts'
import { browserFlags, iceWithoutRoutePermissions } from '../../node/chromium.ts'
import { type Served, serve } from '../../node/serve.ts'
import { readSafetensors } from '../../src/data/safetensors.ts'
import { smallFolder } from '../support/idx-files.ts'
import { launchBrowser } from '../support/launch-browser.ts'

/** The built page, driven as people do. Pictures go to the folder that TABRING_PICTURES names, or to test-results/page. */
const pictures =
  process.env.TABRING_PICTURES || join(import.meta.dirname, '..', '..', 'test-results', 'page')

let served: Served
let browser: Browser
let contexts: BrowserContext[] = []
/** Certificates and data of these tests. */
let folder: string
/** What pages complained about; must stay empty. */
let complaints: string[] = []

beforeAll(async () => {
  mkdirSync(pictures, { recursive: true })
  folder = await mkdtemp(join(tmpdir(), 'tabring-page-'))
  served = await serve({ root: await ensureBuilt(), port: 0 })
  browser = await launchBrowser()
})
afterAll(async () => {
  await browser?.close()
  await served?.close()
  if (folder) await rm(folder, { recursive: true })
})
afterEach(async () => {
  await Promise.all(contexts.map((context) => context.close()))
  contexts = []
  const found = complaints
  complaints = []
  expect(found).toEqual([])
})

async function openContext(from = browser): Promise<BrowserContext> {
  const context = await from.newContext({
    viewport: { width: 1400, height: 900 },
    ignoreHTTPSErrors: true,
  })
  await context.grantPermissions(iceWithoutRoutePermissions)
  contexts.push(context)
  return context
}

async function openTab(context: BrowserContext, url: string): Promise<Page> {
  const page = await context.newPage()
  page.on('pageerror', (error) => complaints.push(error.message))
  page.on('console', (message) => {
    if (message.type() === 'error') complaints.push(message.text())
  })
  await page.goto(url)
  return page
}

const status = (page: Page) => page.locator('.status h2 [role=status]')
const invite = (page: Page) => page.getByLabel('Open this link').inputValue()
const button = (page: Page, name: string) => page.getByRole('button', { name, exact: true })
const members = (page: Page) => page.getByRole('list', { name: 'Members' }).getByRole('listitem')
const lossWords = (page: Page) => page.locator('.chart').getAttribute('aria-label')

async function see(page: Page, title: string | RegExp, timeout = 30_000): Promise<void> {
  await status(page).filter({ hasText: title }).waitFor({ timeout })
}

async function seeMembers(page: Page, count: number): Promise<void> {
  await members(page)
    .nth(count - 1)
    .waitFor()
  expect(await members(page).count()).toBe(count)
}

async function picture(page: Page, name: string): Promise<void> {
  await page.bringToFront() // a tab behind another draws a frame a second
  await page.screenshot({ path: join(pictures, `${name}-1400.png`), fullPage: true })
  await page.setViewportSize({ width: 390, height: 844 })
  await page.waitForTimeout(100) // the chart follows its holder's size on the next frame
  const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)
  await page.screenshot({ path: join(pictures, `${name}-390.png`), fullPage: true })
  await page.setViewportSize({ width: 1400, height: 900 })
  expect(wider, `${name} is wider than a phone`).toBeLessThanOrEqual(0)
}

/** When the page first shows an error, by the clock of this machine, and its text. */
function whenBad(page: Page) {
  const watcher = page.evaluateHandle(() => {
    const look = () => {
      const text = document.querySelector('.status[data-tone=bad] .words p')?.textContent
      return text ? { text, atMs: Date.now() } : null
    }
    const shown = new Promise<{ text: string; atMs: number }>((resolve) => {
      const observer = new MutationObserver(() => {
        const found = look()
        if (!found) return
        observer.disconnect()
        resolve(found)
      })
      observer.observe(document.body, { subtree: true, childList: true, attributes: true })
    })
    return { shown }
  })
  const shown = watcher.then((handle) => handle.evaluate((watched) => watched.shown))
  shown.catch(() => undefined) // awaited once the tab is closed
  return { isWatching: watcher, shown }
}

/** A room of `count` tabs: in one browser profile, or each in its own. */
async function openRoom(count: number, query: string, isShared = true): Promise<Page[]> {
  const first = await openContext()
  const maker = await openTab(first, `${served.localUrl}${query}`)
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

// Three software adapters on two cores take their time.
describe('a room', { timeout: 240_000 }, () => {
  it('three tabs of one browser join by the link, train over ports, agree, and train again', async () => {
    const pages = await openRoom(3, '?epochs=1&steps=24&seed=3')
    const [maker, second, third] = pages
    expect(maker.url()).toMatch(/\?epochs=1&steps=24&seed=3#room=[0-9a-f]{32}&key=[\w-]{43}$/)
    await see(maker, 'Ready with 3 ranks')
    await see(second, /^Waiting for .+ to start$/)
    for (const page of pages) {
      const texts = await members(page).allInnerTexts()
      expect(texts.every((text) => /swiftshader[\s\S]*software/i.test(text))).toBe(true)
      expect(texts.filter((text) => /\byou\b/.test(text))).toHaveLength(1)
      expect(texts[0]).toMatch(/\bmaker\b/)
    }
    expect(await button(second, 'Start').count()).toBe(0)
    await picture(maker, 'lobby-maker')
    await picture(second, 'lobby-joiner')

    await button(maker, 'Start').focus()
    await maker.keyboard.press('Enter')
    await third.getByRole('progressbar').waitFor()
    await third.locator('#experiment').getByText('mlp: 784–256–10, ReLU').waitFor()
    await Promise.all(pages.map((page) => see(page, 'Finished', 90_000)))

    const [, from, to] = (await lossWords(maker))!.match(/: ([\d.]+) at the first, ([\d.]+) at/)!
    expect(Number(to)).toBeLessThan(0.7 * Number(from))
    const hashes = await Promise.all(
      pages.map((page) => page.getByTestId('param-hash').textContent()),
    )
    expect(hashes[0]).toMatch(/^[0-9a-f]{8,}$/)
    expect(new Set(hashes).size).toBe(1)
    expect(await maker.locator('#ring').textContent()).toContain('MessagePorts')
    await picture(maker, 'finished')

    const downloaded = maker.waitForEvent('download')
    await maker.getByRole('button', { name: 'Download weights' }).click()
    const download = await downloaded
    expect(download.suggestedFilename()).toBe('tabring-mlp-24-steps.safetensors')
    const { tensors } = readSafetensors(new Uint8Array(await readFile(await download.path())))
    expect([...tensors.keys()].sort()).toEqual(['0.bias', '0.weight', '2.bias', '2.weight'])

    await button(maker, 'Start again').click()
    await maker.locator('#summary').getByText('Run 2').waitFor({ timeout: 90_000 })
    await see(third, 'Finished', 90_000)
    // Equal settings and seeds: the same bits again.
    expect(await maker.getByTestId('param-hash').textContent()).toBe(hashes[0])
  })

  it('tabs that share nothing but the network train over WebRTC; the link carries the choice', async () => {
    const pages = await openRoom(2, '?transport=webrtc&steps=6&model=cnn', false)
    expect(await invite(pages[0])).toContain('/?transport=webrtc#room=')
    await button(pages[0], 'Start').click()
    await Promise.all(pages.map((page) => see(page, 'Finished', 110_000)))
    const hashes = await Promise.all(
      pages.map((page) => page.getByTestId('param-hash').textContent()),
    )
    expect(new Set(hashes).size).toBe(1)
    expect(await pages[1].locator('#ring').textContent()).toContain('WebRTC data channels')
    expect(await pages[1].locator('#summary').textContent()).toMatch(/[\d.]+ [KM]iB/)
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
      expect(link).toContain('/?transport=fallback#room=')
      const blocked = await openContext()
      // As behind a firewall: it finds no address to connect from.
      await blocked.addInitScript(() => {
        const Original = RTCPeerConnection
        globalThis.RTCPeerConnection = class extends Original {
          constructor(given?: RTCConfiguration) {
            super({ ...given, iceTransportPolicy: 'relay' })
          }
        }
      })
      const second = await openTab(blocked, link)
      await seeMembers(maker, 2)
      const ring = (page: Page) => page.locator('#ring').textContent()
      expect(await ring(maker)).toContain('WebRTC, else through the signaling server.')
      await button(maker, 'Start').click()
      await Promise.all([maker, second].map((page) => see(page, 'Finished', 110_000)))
      for (const page of [maker, second]) {
        expect(await ring(page)).toContain('Through the signaling server, sealed end to end.')
        expect(await page.locator('#ring .edge[data-kind=relay]').count()).toBe(2)
        expect(await page.locator('#summary').textContent()).toMatch(/[\d.]+ [KM]iB/)
      }
    } finally {
      await relaying.close()
    }
  })

  it("goes on from a checkpoint in the browser's private files, to the bits of a run without a break", async () => {
    const first = await openContext()
    const endOf = async (query: string) => {
      const page = await openTab(first, `${served.localUrl}?batchSize=32&${query}`)
      await see(page, 'Alone in the room')
      await button(page, 'Start').click()
      await see(page, 'Finished', 90_000)
      const hash = await page.getByTestId('param-hash').textContent()
      const summary = await page.locator('#summary').textContent()
      await page.close()
      return { hash, summary }
    }
    const before = await endOf('steps=4&checkpointEvery=3')
    const resumed = await endOf('steps=8&resume=latest')
    const whole = await endOf('steps=8')
    expect(resumed.summary).toContain('Went on fromstep 4')
    expect(whole.summary).not.toContain('Went on from')
    expect(resumed.hash).toBe(whole.hash)
    expect(before.hash).not.toBe(whole.hash)
  })

  it('a closed tab is named by the others within 1 s; a late one waits; they start again, and stop', async () => {
    const pages = await openRoom(3, '?steps=100000')
    const [maker, second, third] = pages
    await button(maker, 'Start').click()
    await Promise.all(pages.map((page) => see(page, 'Training', 60_000)))
    await maker.locator('.chart[aria-label*="at step"]').waitFor()
    await picture(maker, 'training')

    const late = await openTab(contexts[0], await invite(maker))
    await see(late, 'A run is under way')
    await picture(late, 'late')

    const told = [maker, third].map(whenBad)
    await Promise.all(told.map((one) => one.isWatching))
    const closedAtMs = Date.now()
    await second.close()
    for (const { shown } of told) {
      const { text, atMs } = await shown
      console.log(`told after ${atMs - closedAtMs} ms: ${text}`)
      expect(text).toContain('rank 1')
      expect(atMs - closedAtMs).toBeLessThan(1000)
    }
    await picture(maker, 'failed')

    await button(maker, 'Start again').click()
    await Promise.all([maker, third, late].map((page) => see(page, 'Training', 60_000)))
    await maker.locator('.chart[aria-label*="at step"]').waitFor()
    await button(maker, 'Stop').click()
    await Promise.all([maker, third, late].map((page) => see(page, 'Stopped')))
    await picture(maker, 'stopped')
  })

  it('one tab trains alone, after its settings have been put right', async () => {
    const page = await openTab(await openContext(), `${served.localUrl}?epochs=none&steps=5`)
    await see(page, 'Alone in the room')
    await page.getByText('expected a number, got none').waitFor()
    expect(await button(page, 'Start').isDisabled()).toBe(true)
    await picture(page, 'wrong-setting')
    await page.getByLabel('Epochs').fill('2')
    await page.waitForFunction(() => location.search === '?epochs=2&steps=5')
    await button(page, 'Start').click()
    await see(page, 'Finished', 60_000)
    await picture(page, 'finished-alone')
  })

  it('trains on the data folder that the server was given', async () => {
    for (const [name, bytes] of Object.entries(smallFolder(200, 50))) {
      await writeFile(join(folder, name), bytes)
    }
    const own = await serve({ root: await ensureBuilt(), port: 0, mounts: { '/data/': folder } })
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

  it('served to other machines, a page opened as localhost gives out a link that they can open', async () => {
    expect(lanAddresses(), 'this machine is in no network: connect it to one').not.toEqual([])
    const root = await ensureBuilt()
    const certificate = await ownCertificate({ folders: [join(folder, '.tabring')] })
    const own = await serve({ root, port: 0, host: true, certificate })
    try {
      const maker = await openTab(await openContext(), own.localUrl)
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
    } finally {
      await own.close()
    }
  })

  it('a page that Back brings back enters its room anew', async () => {
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
    await see(page, 'Alone in the room')
    const name = page.getByRole('textbox', { name: 'This tab' })
    await name.fill('Ada')
    await name.press('Enter')
    await members(page).filter({ hasText: 'Ada' }).waitFor()
  })

  it('a tab whose worker ends while nothing runs says so and leaves the room', async () => {
    const [maker, second] = await openRoom(2, '')
    await second.workers()[0].evaluate(() => self.close())
    await second.locator('.notice[data-kind="worker"]').waitFor()
    await see(maker, 'Alone in the room')
  })

  it('the server goes away: it is said, and nothing can be started', async () => {
    const own = await serve({ root: await ensureBuilt(), port: 0 })
    const page = await openTab(await openContext(), own.localUrl)
    await see(page, 'Alone in the room')
    await own.close()
    await see(page, 'The signaling server is gone')
    expect(await button(page, 'Start').count()).toBe(0)
    await button(page, 'Reload').waitFor()
    await picture(page, 'server-lost')
  })
})

describe('a page that cannot take part says why', () => {
  const hideWebGpu = () =>
    Object.defineProperty(Navigator.prototype, 'gpu', { get: () => undefined })
  const withoutAdapter = [
    ...browserFlags('software').filter((flag) => !flag.includes('swiftshader')),
    '--disable-gpu',
    '--disable-software-rasterizer',
  ]
  const notice = (page: Page, kind: string) => page.locator(`.notice[data-kind="${kind}"]`)

  it('no WebGPU', async () => {
    const context = await openContext()
    await context.addInitScript(hideWebGpu)
    const page = await openTab(context, served.localUrl)
    await notice(page, 'no-webgpu').waitFor()
    await picture(page, 'no-webgpu')
  })

  it('a page without WebGPU trains on the CPU when its person says so', async () => {
    // No adapter either, so that a worker that asked for one would fail.
    const bare = await launchBrowser({ args: withoutAdapter })
    try {
      const context = await openContext(bare)
      await context.addInitScript(hideWebGpu)
      const page = await openTab(context, `${served.localUrl}?steps=3&batchSize=4`)
      await notice(page, 'no-webgpu').waitFor()
      await button(page, 'Compute on the CPU (very slow)').click()
      await see(page, 'Alone in the room')
      expect(await page.evaluate(() => navigator.gpu)).toBeUndefined()
      expect(await members(page).innerText()).toContain('tabring · cpu')
      await button(page, 'Start').click()
      await see(page, 'Finished')
      expect(await page.locator('#summary').textContent()).toContain('Steps3')
      expect(await page.getByTestId('param-hash').textContent()).toMatch(/^[0-9a-f]{8,}$/)
    } finally {
      await bare.close()
      contexts.pop()
    }
  })

  it('an insecure context', async () => {
    const context = await openContext()
    await context.addInitScript(() =>
      Object.defineProperty(window, 'isSecureContext', { get: () => false }),
    )
    const page = await openTab(context, served.localUrl)
    await notice(page, 'insecure').waitFor()
    const text = await notice(page, 'insecure').textContent()
    expect(text).toContain('npm start -- --host')
    expect(text).toContain(`http://localhost:${served.port}`)
    await picture(page, 'insecure')
  })

  it('a cut link', async () => {
    const page = await openTab(await openContext(), `${served.localUrl}#room=12ab&key=`)
    await notice(page, 'bad-link').waitFor()
    await picture(page, 'bad-link')
    await page.goto(`${served.localUrl}?lanes=1,2`)
    await notice(page, 'bad-setting').waitFor()
    expect(await notice(page, 'bad-setting').textContent()).toContain('lanes must be')
    await picture(page, 'bad-setting')
  })

  it('a wrong key', async () => {
    const [maker] = await openRoom(1, '')
    const link = (await invite(maker)).replace(/key=.{10}/, 'key=AAAAAAAAAA')
    const page = await openTab(await openContext(), link)
    await notice(page, 'refused').waitFor()
    expect(await notice(page, 'refused').textContent()).toContain('not the key of the room')
  })

  it('no adapter', async () => {
    const poor = await launchBrowser({ args: withoutAdapter })
    try {
      const page = await openTab(await openContext(poor), served.localUrl)
      await notice(page, 'no-adapter').waitFor()
      await picture(page, 'no-adapter')
    } finally {
      await poor.close()
      contexts.pop()
    }
  })
})
