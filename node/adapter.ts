import { createServer } from 'node:http'
import { messageOf } from '../src/util/errors.ts'
import { listen } from './listen.ts'
import type { TabBrowser } from './tab.ts'

/** The browser shows its WebGPU adapters to no page for so long: then it has none. */
const probeTimeoutMs = 20_000

/** Notes for people where something stands in for a GPU. */
export const noGpuNote = {
  auto: 'no GPU adapter found; computing on the CPU in WebAssembly',
  webgpu: 'no GPU adapter found; computing on the CPU with the software adapter',
} as const

export interface FoundAdapter {
  /** A GPU, the CPU's stand-in for one, or nothing. */
  readonly kind: 'gpu' | 'software' | 'none'
  /** What the browser answered, for people: the adapter's maker and architecture, or how it said no. */
  readonly answer: string
}

/** One of the adapters that differ, as pages get them: the fastest first, one that runs on the CPU last. */
export interface ProbedAdapter {
  readonly name: string
  readonly isSoftware: boolean
}

interface Probed {
  readonly adapters: readonly ProbedAdapter[]
  readonly answer: string
}

/** Which WebGPU adapter a page of this browser gets. */
export async function probeAdapter(browser: TabBrowser): Promise<FoundAdapter> {
  const { adapters, answer } = await probe(browser)
  const first = adapters.at(0)
  return { kind: !first ? 'none' : first.isSoftware ? 'software' : 'gpu', answer }
}

/** All that differ; none where the browser does not answer. */
export async function probeAdapters(browser: TabBrowser): Promise<readonly ProbedAdapter[]> {
  return (await probe(browser)).adapters
}

async function probe(browser: TabBrowser): Promise<Probed> {
  // WebGPU exists in secure contexts only; localhost is one, about:blank is not.
  const server = createServer((_, response) => {
    response.setHeader('Content-Type', 'text/html')
    response.end('<title>adapters</title>')
  })
  const port = await listen(server, { wanted: 0, last: 0, address: '127.0.0.1' })
  const origin = `http://localhost:${port}`
  let timer: NodeJS.Timeout | undefined
  try {
    const tab = await browser.openTab({ origin })
    await tab.load(origin, probeTimeoutMs)
    const asking = tab.evaluate(askForAdapters, null)
    const silence = new Promise<Probed>((resolve) => {
      const answer = `requestAdapter() did not answer within ${probeTimeoutMs / 1000} s`
      timer = setTimeout(() => resolve({ adapters: [], answer }), probeTimeoutMs)
    })
    const broken = (thrown: unknown): Probed => ({
      adapters: [],
      answer: `requestAdapter() failed: ${messageOf(thrown).split('\n')[0]}`,
    })
    const probed = await Promise.race([asking.catch(broken), silence])
    // A browser whose GPU process crashes may take the page with it; the answer counts, not the goodbye.
    await tab.close().catch(() => undefined)
    return probed
  } finally {
    clearTimeout(timer)
    server.close()
    server.closeAllConnections()
  }
}

/** Runs in a page. */
async function askForAdapters(): Promise<Probed> {
  if (!navigator.gpu) return { adapters: [], answer: 'navigator.gpu is missing' }
  const requests: GPURequestAdapterOptions[] = [
    { powerPreference: 'high-performance' },
    { powerPreference: 'low-power' },
    { forceFallbackAdapter: true },
  ]
  const adapters: { name: string; isSoftware: boolean }[] = []
  for (const request of requests) {
    // Twice, as pages do (listAdapters).
    const adapter =
      (await navigator.gpu.requestAdapter(request)) ?? (await navigator.gpu.requestAdapter(request))
    if (!adapter) continue
    const { vendor, architecture, device, description, isFallbackAdapter } = adapter.info
    const name = [vendor, architecture, device, description].filter(Boolean).join(' ')
    const isSoftware = isFallbackAdapter === true || architecture === 'swiftshader'
    if (adapters.some((one) => one.name === name && one.isSoftware === isSoftware)) continue
    adapters.push({ name, isSoftware })
  }
  return { adapters, answer: adapters.at(0)?.name ?? 'requestAdapter() returned null' }
}
