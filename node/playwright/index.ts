import { test as base } from 'playwright/test'
import { TabringError } from '../../src/util/errors.ts'
import { launchForRanks, type RankAdapter } from './launch.ts'
import { OpenRanks, type Ranks } from './ranks.ts'

export { expect } from 'playwright/test'
export type { RelayChoice } from '../../src/distributed/rendezvous/plan-links.ts'
export type { RankAdapter } from './launch.ts'
export type { OpenRanksOptions, Ranks } from './ranks.ts'

/** Fixtures of a test. */
export interface TabringFixtures {
  /** Opens connected ranks, and closes them when the test ends. */
  ranks: Ranks
}

/** Options for `use` in playwright.config.ts and for `test.use()`. */
export interface TabringOptions {
  /** WebGPU adapter on which pages compute. Default `auto`. */
  adapter: RankAdapter
}

/**
 * Playwright's `test` with all its fixtures and options, in a browser with WebGPU, and the fixture `ranks`.
 *
 * The browser is the one in the configuration, else the one that `tabring run` would use. It gets the flags that headless WebGPU and background
 * tabs need.
 * errors: each test fails with `gpu.unavailable` if there is no adapter.
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
          `tabring/playwright: expected Chromium on this machine, got ${connectOptions ? 'connectOptions' : browserName}. Use browserName "chromium" without connectOptions: the tests start it with their own flags.`,
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
