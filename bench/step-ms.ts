import type { Tab, TabBrowser } from '../node/tab.ts'
import { trainInTabs } from '../node/train/tabs.ts'
import type { TrainConfig } from '../src/trainer/settings/config.ts'
import type { SwitchInputs } from '../src/util/switches.ts'
import { median } from './statistics.ts'

export interface TimedSteps {
  readonly url: string
  readonly config: TrainConfig
  readonly tabs: number
  /** Steps that are not counted: in the first ones kernels are still new to the driver, and the evaluation's compile. */
  readonly skipped: number
  readonly switches?: SwitchInputs
}

/** The median step of a run in fresh tabs, by the clock of rank 0. */
export async function stepMs(
  browser: TabBrowser,
  { url, config, tabs, skipped, switches }: TimedSteps,
): Promise<number> {
  const times: number[] = []
  const opened: Tab[] = []
  await trainInTabs({
    browser: {
      close: () => browser.close(),
      onGone: (listener) => browser.onGone(listener),
      openTab: async (settings) => {
        const tab = await browser.openTab(settings)
        opened.push(tab)
        return tab
      },
    },
    url,
    worldSize: tabs,
    config,
    switches,
    timeoutMs: 120_000,
    signal: new AbortController().signal,
    onEvent: (event) => {
      if (event.event === 'step' && event.rank === 0 && event.step > skipped)
        times.push(event.times.total)
    },
  })
  await Promise.all(opened.map((tab) => tab.close()))
  return median(times)
}
