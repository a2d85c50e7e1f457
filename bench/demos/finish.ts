import type { Browser } from 'playwright'

/** What the page itself says of a run that has ended. */
export interface Finished {
  /** The name of what the demo measures on held-out samples, and how much it is, both in the page's words. */
  readonly metric: string
  readonly value: string
  /** units: s. */
  readonly time: string
  readonly steps: number
  /** What it computed on, in words. */
  readonly adapter: string
}

/** Longest that a run may take. units: ms. */
const maxMs = 240_000

/** Opens the training page with these settings in a new context, presses Start, and reads the row of the run when it has finished. errors: those of the page, in its words. */
export async function finish(browser: Browser, url: string, query: string): Promise<Finished> {
  const context = await browser.newContext({ viewport: { width: 1400, height: 900 } })
  try {
    const page = await context.newPage()
    await page.goto(`${url}?${query}`)
    const start = page.getByRole('button', { name: 'Start', exact: true })
    await start.waitFor()
    // The measurement is over: a run would wait for it.
    await page.locator('.member .fact', { hasText: 'GFLOP/s' }).first().waitFor()
    const adapter = await page.locator('.member .adapter').first().innerText()
    await start.click()
    const row = page.locator('#runs tbody tr')
    const ended = row.filter({ hasNotText: 'running' })
    await ended.waitFor({ timeout: maxMs })
    const heads = (await page.locator('#runs thead th').allInnerTexts()).map((head) => head.trim())
    const cells = await row.locator('td').allInnerTexts()
    const at = (name: string) => cells[heads.indexOf(name)].trim()
    if (at('End') !== 'finished') {
      const said = await page.locator('.status').innerText()
      throw new Error(`bench: ${query}: the run did not finish: ${at('End')}. ${said}`)
    }
    const measured = heads.findIndex((head) => /^Test (?!loss$)/.test(head))
    const head = measured < 0 ? 'Test loss' : heads[measured]
    return {
      metric: head
        .split('\n')[0]
        .replace(/^Test /, '')
        .replace(/\s*[^\w\s].*$/, ''),
      value: at(head),
      time: at('Time'),
      steps: Number(at('Steps done').replace(/\D/g, '')),
      adapter: adapter.replace(/\s+/g, ' '),
    }
  } finally {
    await context.close()
  }
}
