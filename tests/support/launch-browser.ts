import { type Browser, chromium, type LaunchOptions } from 'playwright'
import { browserFlags, findBrowser } from '../../node/chromium.ts'

/** Starts a headless browser with the software adapter, which all machines have; an option of `options` wins over these. */
export async function launchBrowser(options: LaunchOptions = {}): Promise<Browser> {
  return chromium.launch({
    executablePath: findBrowser(),
    args: browserFlags('software'),
    ...options,
  })
}
