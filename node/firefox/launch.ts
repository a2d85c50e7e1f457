import { isOfHost } from '../../src/util/device.ts'
import { GpuError, messageOf, TabringError } from '../../src/util/errors.ts'
import { noGpuNote, probeAdapter } from '../adapter.ts'
import { adviceFor } from '../browser-choice.ts'
import type { AdapterChoice } from '../chromium.ts'
import type { LaunchOptions } from '../training-browser.ts'
import { lavapipeOnly } from '../vulkan.ts'
import { Bidi } from './bidi.ts'
import { type FirefoxOptions, startFirefox } from './process.ts'
import { FirefoxTabs } from './tabs.ts'

const lavapipe =
  'On Linux install a Vulkan driver: with lavapipe (apt-get install mesa-vulkan-drivers) the CPU stands in for a GPU.'

/**
 * Returns a Firefox that can compute: with the machine's GPU; for `software`, and for the device `webgpu` where there is no GPU, with the
 * software adapter. Any will do where tabs compute on the CPU. `note` is called with what stands in for a GPU.
 *
 * errors: `browser.missing` where it does not start; `gpu.unavailable` where it has no adapter and needs one.
 */
export async function launchFirefox(
  path: string,
  adapter: AdapterChoice,
  { device = 'webgpu', isHeaded, throttles }: LaunchOptions & { readonly throttles?: boolean },
  note: (line: string) => void,
): Promise<FirefoxTabs> {
  const environment = adapter === 'software' ? { ...process.env, ...softwareOnly() } : process.env
  const browser = await start(path, { isHeaded, throttles, environment })
  if (isOfHost(device)) return browser
  try {
    const { kind, answer } = await probeAdapter(browser)
    if (kind !== 'gpu' && device === 'auto' && adapter === 'auto') note(noGpuNote.auto)
    else if (kind === 'none')
      throw new GpuError(
        'gpu.unavailable',
        `browser: ${path} has no WebGPU adapter: ${answer}. ${answer.startsWith('navigator.gpu') ? 'Use a newer Firefox.' : lavapipe}`,
      )
    else if (kind === 'software' && adapter === 'auto') note(noGpuNote.webgpu)
    return browser
  } catch (thrown) {
    await browser.close()
    throw thrown
  }
}

async function start(path: string, options: FirefoxOptions) {
  let running: Awaited<ReturnType<typeof startFirefox>> | undefined
  try {
    running = await startFirefox(path, options)
    return new FirefoxTabs(await Bidi.connect(running.address), running)
  } catch (thrown) {
    await running?.close()
    throw new TabringError(
      'browser.missing',
      `browser: ${path} did not start: ${messageOf(thrown).split('\n')[0].replace(/\.?$/, '.')} ${adviceFor(options.isHeaded, 'Pass the path of another Firefox as --browser or TABRING_BROWSER.')}`,
      { cause: thrown },
    )
  }
}

/** What makes Firefox compute on the CPU. errors: `gpu.unavailable`. */
function softwareOnly(): NodeJS.ProcessEnv {
  // Elsewhere the system has a software adapter, but a page gets it only where it asks for that.
  if (process.platform !== 'linux') return {}
  const found = lavapipeOnly()
  if (found) return found
  throw new GpuError('gpu.unavailable', `browser: no software adapter for Firefox. ${lavapipe}`)
}
