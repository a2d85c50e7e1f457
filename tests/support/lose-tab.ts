import type { Page } from 'playwright'

/** How a tab is lost: its process dies, or somebody closes it. */
export type Loss = 'crash' | 'close'

/** Resolves when the tab is gone. */
export async function loseTab(page: Page, how: Loss): Promise<void> {
  if (how === 'crash') {
    const crashed = page.waitForEvent('crash')
    const session = await page.context().newCDPSession(page)
    session.send('Page.crash').catch(() => undefined) // never answers
    await crashed
  }
  await page.close()
}
