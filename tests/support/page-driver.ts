import { mkdirSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Browser, BrowserContext, BrowserContextOptions, Page } from 'playwright'
import { afterAll, afterEach, beforeAll, expect } from 'vitest'
import { ensureBuilt } from '../../node/build.ts'
import { iceWithoutRoutePermissions } from '../../node/chromium.ts'
import { type Served, type ServeOptions, serve } from '../../node/serve.ts'
import { readSafetensors } from '../../src/data/safetensors.ts'
import { launchBrowser } from './launch-browser.ts'
import { openIn } from './open-in.ts'
import { repository } from './repository.ts'

/** Pictures are for people: the specs of `npm test` take none, unless TABRING_PICTURES names a folder for them. */
const takesPictures = !!process.env.TABRING_PICTURES || process.env.TABRING_TESTS === 'all'

/** Where pictures of the page go: the folder that TABRING_PICTURES names, or test-results/page. */
export const pictures = process.env.TABRING_PICTURES || join(repository, 'test-results', 'page')

/** The built pages on a server, and a browser for them. */
export interface PageDriver {
  /** There once tests run. */
  readonly served: Pick<Served, 'localUrl' | 'port'>
  readonly browser: Browser
  /** The test's profiles, closed behind it. */
  readonly contexts: BrowserContext[]
  /** Opens another profile, in another browser if one is given. `isNew`: the page opens as for a person who never chose a view, else in the Lab. */
  openContext(options?: ContextOptions): Promise<BrowserContext>
  /** Opens a tab, in the test's first profile if none is given. */
  openTab(url: string, context?: BrowserContext): Promise<Page>
}

interface ContextOptions extends BrowserContextOptions {
  readonly from?: Browser
  readonly isNew?: boolean
}

/** What a browser says of a server that is gone: pages try it again. */
const isDeadServer = /^WebSocket connection to '.+' failed: .*ERR_CONNECTION_REFUSED$/

export interface DriverOptions {
  /** How to serve, asked for before the tests. */
  readonly serving?: () => Promise<Partial<ServeOptions>>
  /** What must not be on a page's console. Default: errors. */
  readonly complaints?: readonly string[]
}

/** Serves the built pages to the tests of this file. A test fails that leaves an error behind, thrown by a page or on its console. */
export function drivePages({
  serving = async () => ({}),
  complaints: kinds = ['error'],
}: DriverOptions = {}): PageDriver {
  let server: Served
  let browser: Browser
  const contexts: BrowserContext[] = []
  /** The first profile, on its way: tabs that are opened at once share it. */
  let first: Promise<BrowserContext> | null = null
  const complaints: string[] = []
  beforeAll(async () => {
    mkdirSync(pictures, { recursive: true })
    server = await serve({ root: await ensureBuilt(), port: 0, ...(await serving()) })
    browser = await launchBrowser()
  })
  afterAll(async () => {
    await browser?.close()
    await server?.close()
  })
  afterEach(async () => {
    await Promise.all(contexts.splice(0).map((context) => context.close()))
    first = null
    expect(complaints.splice(0)).toEqual([])
  })
  const driver: PageDriver = {
    served: {
      get localUrl() {
        return server.localUrl
      },
      get port() {
        return server.port
      },
    },
    get browser() {
      return browser
    },
    contexts,
    openContext({ from = browser, isNew = false, ...options } = {}) {
      const opened = from
        .newContext({
          viewport: { width: 1400, height: 900 },
          ignoreHTTPSErrors: true,
          ...options,
        })
        .then(async (context) => {
          contexts.push(context)
          if (!isNew) await openIn('lab', context)
          await context.grantPermissions(iceWithoutRoutePermissions)
          return context
        })
      first ??= opened
      return opened
    },
    async openTab(url, context) {
      const page = await (context ?? (await (first ?? driver.openContext()))).newPage()
      page.on('pageerror', (error) => complaints.push(error.message))
      page.on('console', (message) => {
        const text = message.text()
        if (kinds.includes(message.type()) && !isDeadServer.test(text)) complaints.push(text)
      })
      await page.goto(url)
      return page
    },
  }
  return driver
}

// --- what people see on a page, and press ---

/** From now on notes each step before which the page shows a state hash. Returns what gives them: hashes by step. */
export async function watchStates(page: Page): Promise<() => Promise<Record<string, string>>> {
  await page.evaluate(() => {
    const states: Record<string, string> = {}
    Object.assign(globalThis, { states })
    new MutationObserver(() => {
      for (const readout of document.querySelectorAll('.readout')) {
        const [label, value, note] = ['dt', '.value', '.note'].map(
          (part) => readout.querySelector(part)?.textContent ?? '',
        )
        const step = /^before step (\d+)/.exec(note)?.[1]
        if (label === 'State hash' && step) states[step] = value
      }
    }).observe(document.body, { childList: true, characterData: true, subtree: true })
  })
  return () =>
    page.evaluate(() => (globalThis as unknown as { states: Record<string, string> }).states)
}

export const status = (page: Page) => page.locator('.status h2 [role=status]')
export const button = (page: Page, name: string) => page.getByRole('button', { name, exact: true })
export const members = (page: Page) =>
  page.getByRole('list', { name: 'Members' }).getByRole('listitem')
export const invite = (page: Page) => page.getByLabel('Open this link').inputValue()
export const hashOf = (page: Page) => page.getByTestId('param-hash').textContent()

/** From the first screen, which the bare address opens, to the settings and instruments. */
export const showInstruments = (page: Page): Promise<void> =>
  page.getByRole('button', { name: 'Settings and instruments' }).click()

/** Waits for the status of that title. */
export async function see(page: Page, title: string | RegExp, timeout = 60_000): Promise<void> {
  await status(page).filter({ hasText: title }).waitFor({ timeout })
}

/** Waits for the page's run of that number: a later run is over as soon as it begins, and says what the one before said. */
export const seeRun = (page: Page, run: number): Promise<void> =>
  page.locator('#summary').getByText(`Run ${run}`).waitFor({ timeout: 90_000 })

/** Waits until the page lists `count` members. */
export async function seeMembers(page: Page, count: number): Promise<void> {
  await expect.poll(() => members(page).count(), { timeout: 30_000 }).toBe(count)
}

const usualAppearance = [
  { width: 1400, colorScheme: 'light' },
  { width: 1400, colorScheme: 'dark' },
  { width: 375, colorScheme: 'light' },
] as const

/** Fails unless the page fits, wide and narrow, and takes pictures of it or of a part of it; wide and light again afterwards. */
export async function photograph(
  page: Page,
  name: string,
  { part, looks = usualAppearance }: { part?: string; looks?: readonly ModelQuery[] } = {},
): Promise<void> {
  await page.bringToFront() // a tab behind another draws a frame a second
  for (const { width, colorScheme } of looks) {
    await page.setViewportSize({ width, height: 900 })
    await page.emulateMedia({ colorScheme })
    // The chart follows its holder's size on the next frames.
    const tooWide = () => page.evaluate(() => document.documentElement.scrollWidth - innerWidth)
    await expect.poll(tooWide, { message: `${name} at ${width} px` }).toBeLessThanOrEqual(0)
    await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(drawn)))
    if (!takesPictures) continue
    const path = join(pictures, `${name}-${width}-${colorScheme}.png`)
    if (part) await page.locator(part).screenshot({ path })
    else await page.screenshot({ path, fullPage: true })
  }
  await page.setViewportSize({ width: 1400, height: 900 })
  await page.emulateMedia({ colorScheme: 'light' })
}

interface ModelQuery {
  readonly width: number
  readonly colorScheme: 'light' | 'dark'
}

/** When the page first shows an error, by the clock of this machine, its title and its text. */
export function whenBad(page: Page) {
  const watcher = page.evaluateHandle(() => {
    const look = () => {
      const text = document.querySelector('.status[data-tone=bad] .words')?.textContent
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
  shown.catch(() => undefined) // awaited once a tab is closed
  return { isWatching: watcher, shown }
}

/** Drops files on a part of the page, as a person would. */
export const dropOn = (
  place: ReturnType<Page['locator']>,
  files: Readonly<Record<string, Uint8Array>>,
  type = '',
): Promise<void> =>
  place.evaluate(
    (element, { named, type }) => {
      const transfer = new DataTransfer()
      for (const [name, base64] of named) {
        const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0))
        transfer.items.add(new File([bytes], name, { type }))
      }
      const init = { dataTransfer: transfer, bubbles: true, cancelable: true }
      if (element.dispatchEvent(new DragEvent('drop', init))) throw new Error('the page let it go')
    },
    {
      named: Object.entries(files).map(([name, bytes]) => [
        name,
        Buffer.from(bytes).toString('base64'),
      ]),
      type,
    },
  )

/** Presses *Download weights*; returns the file's name, its tensors and the run's record. */
export async function downloadWeights(page: Page) {
  const downloaded = page.waitForEvent('download')
  await page.getByRole('button', { name: 'Download weights' }).click()
  const download = await downloaded
  const bytes = new Uint8Array(await readFile(await download.path()))
  const { tensors, metadata } = readSafetensors(bytes)
  const record = JSON.parse(metadata['tabring.record'])
  return { name: download.suggestedFilename(), tensors, record }
}
