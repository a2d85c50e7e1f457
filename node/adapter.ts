import type { Browser } from 'playwright'
import { messageOf } from '../src/util/errors.ts'

/** The browser shows its WebGPU adapter to no page for so long: then it has none. */
const probeTimeoutMs = 20_000

/** What people are told where the software adapter stands in. */
export const noGpuNote = 'no GPU adapter came up; computing on the CPU with the software adapter'

export interface FoundAdapter {
  /** A GPU, the CPU's stand-in for one, or nothing. */
  readonly kind: 'gpu' | 'software' | 'none'
  /** What the browser answered, for people: the adapter's maker and architecture, or how it said no. */
  readonly answer: string
}

/** Which WebGPU adapter a page of this browser gets. */
export async function probeAdapter(browser: Browser): Promise<FoundAdapter> {
  const page = await browser.newPage()
  page.setDefaultTimeout(probeTimeoutMs)
  try {
    // WebGPU exists in secure contexts only; localhost is one, about:blank is not. Nothing is really fetched.
    await page.route('**/*', (route) =>
      route.fulfill({ contentType: 'text/html', body: '<title>adapter</title>' }),
    )
    await page.goto('http://localhost/adapter')
    const asking = page.evaluate(async (): Promise<FoundAdapter> => {
      if (!navigator.gpu) return { kind: 'none', answer: 'navigator.gpu is not there' }
      const adapter = await navigator.gpu.requestAdapter()
      if (!adapter) return { kind: 'none', answer: 'requestAdapter() gave null' }
      const { isFallbackAdapter, vendor, architecture } = adapter.info
      const isSoftware = isFallbackAdapter || architecture === 'swiftshader'
      return { kind: isSoftware ? 'software' : 'gpu', answer: `${vendor} ${architecture}`.trim() }
    })
    let timer: NodeJS.Timeout | undefined
    const silence = new Promise<FoundAdapter>((resolve) => {
      const answer = `requestAdapter() did not answer within ${probeTimeoutMs / 1000} s`
      timer = setTimeout(() => resolve({ kind: 'none', answer }), probeTimeoutMs)
    })
    const broken = (thrown: unknown): FoundAdapter => ({
      kind: 'none',
      answer: `requestAdapter() failed: ${messageOf(thrown).split('\n')[0]}`,
    })
    try {
      return await Promise.race([asking.catch(broken), silence])
    } finally {
      clearTimeout(timer)
    }
  } finally {
    // A browser whose GPU process crashes may take the page with it; the answer counts, not the goodbye.
    await page.close().catch(() => undefined)
  }
}
