import { type DeviceChoice, isOfHost } from '../src/util/device.ts'
import { type BrowserChoice, findChosen } from './browser-choice.ts'
import type { AdapterChoice } from './chromium.ts'
import type { TabBrowser } from './tab.ts'
import type { LaunchOptions } from './training-browser.ts'

/** For whoever chose to compute without a GPU; undefined where that is not so. */
export const hostNote = (device: DeviceChoice): string | undefined =>
  isOfHost(device)
    ? `computing on the CPU ${device === 'cpu' ? 'in WebAssembly' : 'by the plain references, slowly'}`
    : undefined

/** Starts a browser that can compute. errors: `browser.missing` where it does not start; `gpu.unavailable`. */
export type StartBrowser = (
  adapter: AdapterChoice,
  options: LaunchOptions,
  note: (line: string) => void,
) => Promise<TabBrowser>

/** Returns what starts the chosen browser, which is there; what drives it is loaded. errors: `browser.missing`. */
export async function browserStarter(choice: BrowserChoice): Promise<StartBrowser> {
  if (choice.kind === 'firefox') {
    const path = findChosen(choice)
    const { launchFirefox } = await import('./firefox/launch.ts')
    return (...given) => launchFirefox(path, ...given)
  }
  const [{ findBrowser }, { chromiumTabs }, { launchForTraining }] = await Promise.all([
    import('./chromium.ts'),
    import('./chromium-tabs.ts'),
    import('./training-browser.ts'),
  ])
  const path = findBrowser(choice)
  return async (adapter, options, note) =>
    chromiumTabs(await launchForTraining(adapter, { ...options, path }, note))
}
