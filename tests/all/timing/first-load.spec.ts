import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import type { Browser } from 'playwright'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Visit, visit } from '../../../bench/start/visit.ts'
import { ensureBuilt } from '../../../node/build.ts'
import { serve } from '../../../node/serve.ts'
import { firstLoadBudget, sizeLines, sumOf } from '../../../scripts/size/budget.ts'
import { gzipBytesOf } from '../../../scripts/size/chunks.ts'
import { launchBrowser } from '../../support/launch-browser.ts'

/** What index.html fetches before anybody presses Start, how soon the first step comes, and what a part that does not come looks like. */

/** The goal is 2 s, which `npm run bench -- start` measures; a test machine with other work on it is given three times that. */
const firstStepLimitMs = 6000

let browser: Browser
let root: string
let visited: Visit

beforeAll(async () => {
  root = await ensureBuilt()
  browser = await launchBrowser()
  const served = await serve({ root, port: 0 })
  try {
    visited = await visit(browser, served)
  } finally {
    await served.close()
  }
})
afterAll(() => browser?.close())

const sizesOf = (files: readonly string[]) =>
  new Map(files.map((file) => [file, gzipBytesOf(join(root, file))]))

describe('index.html', () => {
  it('keeps to the budget of its first load, worker and shaders included', () => {
    const sizes = sizesOf(visited.firstLoad)
    const names = [...sizes.keys()].join()
    // The server saw the page, its worker and the shared one.
    for (const part of ['main-', 'compute.worker-', 'shared-worker-']) expect(names).toContain(part)
    expect(sumOf(sizes.values()), sizeLines(sizes)).toBeLessThanOrEqual(firstLoadBudget)
  })

  it('leaves to Start what a run of the default demo needs, and no other demo', () => {
    const names = visited.start.join()
    for (const part of ['training-', 'demo-', 'uPlot']) expect(names).toContain(part)
    for (const part of ['laned-connection-', 'cnn-', 'gpt-', 'story-', 'grad-scaler-'])
      expect(names).not.toContain(part)
  })

  it('makes its first step soon after Start', () => {
    const { 'step 1': firstStepMs } = visited.moments
    expect(firstStepMs, JSON.stringify(visited.moments)).toBeLessThan(firstStepLimitMs)
  })

  it('shows an error when a part does not come from the server', async () => {
    const part = readdirSync(join(root, 'assets')).find((name) => /^training-.*\.js$/.test(name))
    const served = await serve({
      root,
      port: 0,
      extraRoutes: {
        [`/assets/${part}`]: (_request, response) => {
          response.writeHead(404)
          response.end()
        },
      },
    })
    const context = await browser.newContext()
    try {
      const page = await context.newPage()
      await page.goto(`${served.localUrl}?demo=digits`)
      await page.locator('button.go:enabled', { hasText: /^Start$/ }).click()
      const words = page.getByText(
        /training: could not load this part of the page from the server/i,
      )
      await words.first().waitFor()
      expect(await words.first().innerText()).toContain('reload the page')
    } finally {
      await context.close()
      await served.close()
    }
  })
})
