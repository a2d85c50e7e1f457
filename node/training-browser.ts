import { type Browser, chromium } from 'playwright'
import { type DeviceChoice, isOfHost } from '../src/util/device.ts'
import { messageOf, TabringError } from '../src/util/errors.ts'
import { type FoundAdapter, noGpuNote, probeAdapter } from './adapter.ts'
import { adviceFor } from './browser-choice.ts'
import { type AdapterChoice, browserFlags, findBrowser } from './chromium.ts'
import { chromiumTabs } from './chromium-tabs.ts'

export interface LaunchOptions {
  /** What the tabs compute on; default `webgpu`. */
  readonly device?: DeviceChoice
  readonly isHeaded: boolean
  /** Whether somebody looks at the times of single kernels. */
  readonly timesKernels: boolean
  /** Of the browser's executable; default: that of `findBrowser`. */
  readonly path?: string
}

async function launch(
  adapter: AdapterChoice,
  { isHeaded, timesKernels, path: executablePath = findBrowser() }: LaunchOptions,
): Promise<Browser> {
  try {
    const start = () =>
      chromium.launch({
        executablePath,
        headless: !isHeaded,
        // Without this, timestamps are rounded to 100 µs.
        args: [
          ...browserFlags(adapter),
          ...(timesKernels ? ['--enable-webgpu-developer-features'] : []),
        ],
        // Ctrl-C is the command's own affair: it closes tabs, browser and server in order.
        handleSIGINT: false,
        handleSIGTERM: false,
        handleSIGHUP: false,
      })
    // A Chromium that crashed at its start may come up the next time.
    return await start().catch(start)
  } catch (thrown) {
    const [reason] = messageOf(thrown)
      .replace(/^browserType\.launch: /, '')
      .split('\n')
    throw new TabringError(
      'browser.missing',
      `browser: ${executablePath} did not start: ${reason.replace(/\.?$/, '.')} ${adviceFor(isHeaded, 'Set TABRING_BROWSER to another Chrome or Chromium.')}`,
      { cause: thrown },
    )
  }
}

/**
 * Returns a browser that can compute: with the machine's GPU; for `software`, and for the device `webgpu` where there is no GPU, with the
 * software adapter. Any will do where tabs compute on the CPU. `note` is called with what stands in for a GPU.
 *
 * errors: `browser.missing` when there is none or it does not start.
 */
export async function launchForTraining(
  choice: AdapterChoice,
  options: LaunchOptions,
  note: (line: string) => void,
): Promise<Browser> {
  const { device = 'webgpu' } = options
  // The CPU needs no adapter: the one that starts everywhere will do.
  if (isOfHost(device) || choice === 'software') return launch('software', options)
  const browser = await launch('auto', options)
  let found: FoundAdapter
  try {
    found = await probeAdapter(chromiumTabs(browser))
  } catch (thrown) {
    await browser.close()
    throw thrown
  }
  if (found.kind === 'gpu') return browser
  if (device === 'auto') {
    note(noGpuNote.auto)
    return browser
  }
  await browser.close()
  note(noGpuNote.webgpu)
  return launch('software', options)
}
