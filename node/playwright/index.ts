import type { Browser } from 'playwright'
import {
  test as base,
  type PlaywrightTestArgs,
  type PlaywrightTestOptions,
  type PlaywrightWorkerArgs,
  type PlaywrightWorkerOptions,
  type TestType,
} from 'playwright/test'
import { GpuError, TabringError } from '../../src/util/errors.ts'
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
  /**
   * True if tests are skipped, with the reason, on a machine whose browser has no such adapter; each test of the worker then starts the browser.
   * Default false: they fail.
   */
  skipWithoutAdapter: boolean
}

/** Shared by the fixtures below. */
interface OwnWorkerFixtures {
  /** Starts the worker's browser once. Returns the error instead where it has no adapter. */
  startedBrowser: () => Promise<Browser | GpuError>
}

/**
 * Playwright's `test` with all its fixtures and options, in a browser with WebGPU, and the fixture `ranks`.
 *
 * The browser is the one in the configuration, else the one that `tabring run` would use. It gets the flags that headless WebGPU and background
 * tabs need.
 * errors: each test fails with `gpu.unavailable` if there is no adapter, unless `skipWithoutAdapter`.
 */
export const test: TestType<
  PlaywrightTestArgs & PlaywrightTestOptions & TabringFixtures,
  PlaywrightWorkerArgs & PlaywrightWorkerOptions & TabringOptions
> = base.extend<TabringFixtures & { skips: undefined }, TabringOptions & OwnWorkerFixtures>({
  adapter: ['auto', { scope: 'worker', option: true }],
  skipWithoutAdapter: [false, { scope: 'worker', option: true }],
  startedBrowser: [
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
      let starting: Promise<Browser | GpuError> | undefined
      await use(() => {
        starting ??= launchForRanks(adapter, playwright.chromium, options, (line) =>
          process.stderr.write(`tabring: ${line}\n`),
        ).catch((thrown) => {
          if (thrown instanceof GpuError) return thrown
          throw thrown
        })
        return starting
      })
      const browser = await starting
      if (browser && !(browser instanceof GpuError)) await browser.close({ reason: 'Test ended.' })
    },
    { scope: 'worker', timeout: 0 },
  ],
  browser: [
    async ({ startedBrowser }, use) => {
      const browser = await startedBrowser()
      if (browser instanceof GpuError) throw browser
      await use(browser)
    },
    { scope: 'worker', timeout: 0 },
  ],
  // Set up before the fixtures that a test names.
  skips: [
    async ({ skipWithoutAdapter, startedBrowser }, use, testInfo) => {
      const browser = skipWithoutAdapter && (await startedBrowser())
      if (browser instanceof GpuError) testInfo.skip(true, browser.message)
      await use(undefined)
    },
    { auto: true, timeout: 0 },
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
