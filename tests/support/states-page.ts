import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Browser, Page } from 'playwright'
import { createServer } from 'vite'
import { launchBrowser } from './launch-browser.ts'
import { repository } from './repository.ts'

const fixture = 'tests/e2e/fixtures/states.html'

/** The page of all designed states in a browser, and what it complained about. */
export interface StatesPage {
  readonly page: Page
  readonly browser: Browser
  readonly complaints: readonly string[]
  close(): Promise<void>
}

export async function openStates(): Promise<StatesPage> {
  const cacheDir = await mkdtemp(join(tmpdir(), 'tabring-vite-'))
  const server = await createServer({
    root: repository,
    configFile: false,
    logLevel: 'error',
    cacheDir,
    server: { port: 0, host: '127.0.0.1', watch: null, hmr: false },
    optimizeDeps: { entries: [fixture], include: ['uqr'] },
  })
  await server.listen()
  const address = server.httpServer?.address()
  if (!address || typeof address === 'string') throw new Error('no port')
  const browser = await launchBrowser()
  const page = await browser.newPage()
  const complaints: string[] = []
  page.on('pageerror', (error) => complaints.push(error.message))
  page.on('console', (message) => {
    if (message.type() === 'error') complaints.push(message.text())
  })
  await page.goto(`http://127.0.0.1:${address.port}/${fixture}`)
  await page.waitForFunction(() => window.states !== undefined)
  return {
    page,
    browser,
    complaints,
    async close() {
      await browser.close()
      await server.close()
      await rm(cacheDir, { recursive: true })
    },
  }
}
