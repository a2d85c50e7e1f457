import type { TabBrowser } from '../node/tab.ts'
import { type TrainTransport, trainInTabs } from '../node/train/tabs.ts'
import type { TrainConfig } from '../src/trainer/settings/config.ts'
import type { SwitchInputs } from '../src/util/switches.ts'
import { median } from './statistics.ts'

/** By part, `total` among them. units: ms. */
export type StepParts = Readonly<Record<string, number>>

export interface TimedSteps {
  readonly url: string
  readonly config: TrainConfig
  readonly tabs: number
  /** Steps that are not counted: in the first ones kernels are still new to the driver, and the evaluation's compile. */
  readonly skipped: number
  readonly switches?: SwitchInputs
  /** Default: `webrtc`, each tab with a browser context for itself. */
  readonly transport?: TrainTransport
}

/** The median step of a run in fresh tabs, by the clock of rank 0. */
export const stepMs = async (browser: TabBrowser, timed: TimedSteps): Promise<number> =>
  median((await stepTimes(browser, timed)).map(({ total }) => total))

/** The steps of a run in fresh tabs, by the clock of rank 0. */
export async function stepTimes(
  browser: TabBrowser,
  { url, config, tabs, skipped, switches, transport }: TimedSteps,
): Promise<StepParts[]> {
  const times: StepParts[] = []
  await trainInTabs({
    browser,
    url,
    worldSize: tabs,
    config,
    switches,
    transport,
    timeoutMs: 120_000,
    signal: new AbortController().signal,
    onEvent: (event) => {
      if (event.event === 'step' && event.rank === 0 && event.step > skipped)
        times.push(event.times)
    },
  })
  return times
}
