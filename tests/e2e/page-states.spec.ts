import { mkdirSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Browser, Page } from 'playwright'
import { createServer, type ViteDevServer } from 'vite'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { launchBrowser } from '../support/launch-browser.ts'

/**
 * Every designed state of the page at two widths: nothing sticks out, nothing complains, every control has a name.
 * With TABRING_PICTURES naming a folder, each is photographed there, light and dark.
 */
const pictures = process.env.TABRING_PICTURES
const fixture = 'tests/e2e/fixtures/states.html'
const sizes = [
  { width: 1400, height: 900 },
  { width: 390, height: 844 },
]

let server: ViteDevServer
let cacheDir: string
let browser: Browser
let page: Page
const complaints: string[] = []

beforeAll(async () => {
  cacheDir = await mkdtemp(join(tmpdir(), 'tabring-vite-'))
  server = await createServer({
    root: join(import.meta.dirname, '..', '..'),
    configFile: false,
    logLevel: 'error',
    cacheDir,
    server: { port: 0, host: '127.0.0.1', watch: null, hmr: false },
    optimizeDeps: { entries: [fixture] },
  })
  await server.listen()
  const address = server.httpServer?.address()
  if (!address || typeof address === 'string') throw new Error('no port')
  browser = await launchBrowser()
  page = await browser.newPage()
  page.on('pageerror', (error) => complaints.push(error.message))
  page.on('console', (message) => {
    if (message.type() === 'error') complaints.push(message.text())
  })
  await page.goto(`http://127.0.0.1:${address.port}/${fixture}`)
  await page.waitForFunction(() => window.states !== undefined)
  if (pictures) mkdirSync(pictures, { recursive: true })
})
afterAll(async () => {
  await browser?.close()
  await server?.close()
  if (cacheDir) await rm(cacheDir, { recursive: true })
})

it.each(sizes)('all states fit a page of $width px', async (size) => {
  await page.setViewportSize(size)
  for (const name of await page.evaluate(() => window.states.names)) {
    const found = await page.evaluate((shown) => {
      window.states.show(shown)
      const { scrollWidth } = document.documentElement
      const controls = [...document.querySelectorAll('input, select, button, a')]
      const nameless = controls.filter((control) => {
        const labels = 'labels' in control ? (control.labels as NodeList | null) : null
        return !labels?.length && !control.getAttribute('aria-label') && !control.textContent
      })
      return { tooWide: scrollWidth - innerWidth, nameless: nameless.map((one) => one.outerHTML) }
    }, name)
    expect(found, name).toEqual({ tooWide: 0, nameless: [] })
    for (const colorScheme of pictures ? (['light', 'dark'] as const) : []) {
      await page.emulateMedia({ colorScheme })
      await page.waitForTimeout(100) // the chart is drawn on the next frame
      const path = join(pictures!, `state-${name}-${size.width}-${colorScheme}.png`)
      await page.screenshot({ path, fullPage: true })
    }
  }
  expect(complaints).toEqual([])
})
