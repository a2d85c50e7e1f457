import { test as base } from 'playwright/test'
import { TabringError } from '../../src/util/errors.ts'
import { launchForRanks, type RankAdapter } from './launch.ts'
import { OpenRanks, type Ranks } from './ranks.ts'

export { expect } from 'playwright/test'
export type { RelayChoice } from '../../src/distributed/rendezvous/plan-links.ts'
export type { RankAdapter } from './launch.ts'
export type { OpenRanksOptions, Ranks } from './ranks.ts'

/** What a test gets. */
export interface TabringFixtures {
  /** Opens connected ranks, and closes them when the test has ended. */
  ranks: Ranks
}

/** What `use` in playwright.config.ts or `test.use()` may set. */
export interface TabringOptions {
  /** The adapter to compute on; default `auto`. */
  adapter: RankAdapter
}

/**
 * Playwright's `test` in a browser with WebGPU: all its fixtures and options, and `ranks`.
 *
 * The browser is the one that the configuration names, else the one that `tabring run` would take, with the flags that headless WebGPU and
 * tabs in the background need.
 * errors: `gpu.unavailable` fails each test where no adapter comes up.
 */
export const test = base.extend<TabringFixtures, TabringOptions>({
  adapter: ['auto', { scope: 'worker', option: true }],
  browser: [
    async (
      { adapter, playwright, browserName, headless, channel, launchOptions, connectOptions },
      use,
    ) => {
      if (browserName !== 'chromium' || connectOptions) {
        throw new TabringError(
          'config.invalid',
          `tabring/playwright: expected Chromium on this machine, got ${connectOptions ? 'connectOptions' : browserName}. Its tests need a browser that they start with flags of their own.`,
        )
      }
      const options = { ...launchOptions, headless, channel }
      const browser = await launchForRanks(adapter, playwright.chromium, options, (line) =>
        process.stderr.write(`tabring: ${line}\n`),
      )
      await use(browser)
      await browser.close({ reason: 'Test ended.' })
    },
    { scope: 'worker', timeout: 0 },
  ],
  ranks: async ({ browser, baseURL }, use, testInfo) => {
    const ranks = new OpenRanks({
      browser,
      baseURL,
      onSay: (stream, line) => process[stream].write(`${line}\n`),
    })
    await use(ranks)
    await ranks.close(testInfo.status === 'timedOut', (text) =>
      testInfo.errors.some(({ message }) => message?.includes(text)),
    )
  },
})
