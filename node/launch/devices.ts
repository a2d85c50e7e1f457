import { availableParallelism } from 'node:os'
import type { Browser } from 'playwright'
import { TabringError } from '../../src/util/errors.ts'
import type { TabChoice } from './flags.ts'

/** How many GPUs pages of this browser see: distinct adapters that are none of the browser's own software. */
async function countGpus(browser: Browser): Promise<number> {
  const page = await browser.newPage()
  try {
    // WebGPU exists in secure contexts only; localhost is one, about:blank is not. Nothing is really fetched.
    await page.route('**/*', (route) =>
      route.fulfill({ contentType: 'text/html', body: '<title>adapters</title>' }),
    )
    await page.goto('http://localhost/adapters')
    return await page.evaluate(async () => {
      const found = new Set<string>()
      for (const powerPreference of ['high-performance', 'low-power'] as const) {
        const adapter = await navigator.gpu?.requestAdapter({ powerPreference })
        if (!adapter) continue
        const { vendor, architecture, device, description, isFallbackAdapter } = adapter.info
        if (isFallbackAdapter || architecture === 'swiftshader') continue
        found.add([vendor, architecture, device, description].join(' '))
      }
      return found.size
    })
  } finally {
    await page.close().catch(() => undefined)
  }
}

/**
 * Returns how many tabs `--nproc-per-node` means on this machine, at most `maxTabs`.
 *
 * `openBrowser` is called where GPUs count. `visibleDevices`: GPUs that the switch leaves out do not count.
 * errors: `gpu.unavailable` for `gpu` where there is none.
 */
export async function countTabs(
  tabs: number | TabChoice,
  openBrowser: () => Promise<Browser>,
  {
    maxTabs = Number.POSITIVE_INFINITY,
    visibleDevices,
  }: { maxTabs?: number; visibleDevices?: string | null },
): Promise<number> {
  if (typeof tabs === 'number') return tabs
  const all = tabs === 'cpu' ? 0 : await countGpus(await openBrowser())
  const visible = visibleDevices?.split(',').filter((one) => one !== '' && Number(one) < all)
  const gpus = visible?.length ?? all
  if (tabs === 'gpu' && gpus === 0) {
    throw new TabringError(
      'gpu.unavailable',
      '--nproc-per-node gpu: expected a GPU that the browser can use, got none. Give a number, or cpu.',
    )
  }
  return Math.min(maxTabs, gpus || availableParallelism())
}
