import { type Browser, chromium } from 'playwright'
import { messageOf, TabringError } from '../../src/util/errors.ts'
import { type AdapterChoice, browserFlags, findBrowser } from '../chromium.ts'

/** The browser shows its WebGPU adapter to no page for so long: then it has none. */
const probeTimeoutMs = 20_000

export interface LaunchOptions {
  readonly isHeaded: boolean
  /** Whether somebody looks at the times of single kernels. */
  readonly timesKernels: boolean
}

async function launch(
  adapter: AdapterChoice,
  { isHeaded, timesKernels }: LaunchOptions,
): Promise<Browser> {
  const executablePath = findBrowser()
  try {
    return await chromium.launch({
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
  } catch (thrown) {
    const [reason] = messageOf(thrown)
      .replace(/^browserType\.launch: /, '')
      .split('\n')
    throw new TabringError(
      'browser.missing',
      `browser: expected ${executablePath} to start, got: ${reason} Set TABRING_BROWSER to another Chrome or Chromium.`,
      { cause: thrown },
    )
  }
}

/** Whether a page of this browser gets a GPU, the CPU's stand-in for one, or nothing. */
async function probeAdapter(browser: Browser): Promise<'gpu' | 'software' | 'none'> {
  const page = await browser.newPage()
  page.setDefaultTimeout(probeTimeoutMs)
  try {
    // WebGPU exists in secure contexts only; localhost is one, about:blank is not. Nothing is really fetched.
    await page.route('**/*', (route) =>
      route.fulfill({ contentType: 'text/html', body: '<title>adapter</title>' }),
    )
    await page.goto('http://localhost/adapter')
    const asking = page.evaluate(async () => {
      const adapter = await navigator.gpu?.requestAdapter()
      if (!adapter) return 'none'
      const { isFallbackAdapter, architecture } = adapter.info
      return isFallbackAdapter || architecture === 'swiftshader' ? 'software' : 'gpu'
    })
    let timer: NodeJS.Timeout | undefined
    const silence = new Promise<'none'>((resolve) => {
      timer = setTimeout(() => resolve('none'), probeTimeoutMs)
    })
    try {
      return await Promise.race([asking.catch(() => 'none' as const), silence])
    } finally {
      clearTimeout(timer)
    }
  } finally {
    // A browser whose GPU process crashes may take the page with it; the answer counts, not the goodbye.
    await page.close().catch(() => undefined)
  }
}

/**
 * Returns a browser that can compute: with the machine's GPU, or, for `software` and where there is no GPU, with the
 * software adapter, which `note` is then told.
 *
 * errors: `browser.missing` when there is none or it does not start.
 */
export async function launchForTraining(
  choice: AdapterChoice,
  options: LaunchOptions,
  note: (line: string) => void,
): Promise<Browser> {
  if (choice === 'software') return launch('software', options)
  const browser = await launch('auto', options)
  let found: 'gpu' | 'software' | 'none'
  try {
    found = await probeAdapter(browser)
  } catch (thrown) {
    await browser.close()
    throw thrown
  }
  if (found === 'gpu') return browser
  await browser.close()
  note('no GPU adapter came up; computing on the CPU with the software adapter')
  return launch('software', options)
}
