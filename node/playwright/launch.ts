import type { Browser, BrowserType, LaunchOptions } from 'playwright'
import { GpuError } from '../../src/util/errors.ts'
import { checkChoice } from '../../src/util/options.ts'
import { type FoundAdapter, probeAdapter } from '../adapter.ts'
import { type AdapterChoice, browserFlags, findBrowser } from '../chromium.ts'

/**
 * Which WebGPU adapter the pages of a test compute on. `auto`: the machine's GPU, or where there is none the software adapter, a CPU's
 * stand-in that all machines have. `gpu`, `software`: that one or a failure.
 */
export type RankAdapter = 'auto' | 'gpu' | 'software'
const choices: readonly RankAdapter[] = ['auto', 'gpu', 'software']

/** A browser that was started to look for an adapter. */
interface Attempt {
  readonly args: readonly string[]
  readonly version: string
  readonly found: FoundAdapter
}

/**
 * Returns a browser whose pages get a WebGPU adapter of the kind that is asked for.
 *
 * `given` are the launch options of Playwright's configuration: what they say of the executable and of flags goes before Tabring's own.
 * errors: `gpu.unavailable` where none comes up, naming browsers, flags and what to do; `browser.missing`.
 */
export async function launchForRanks(
  adapter: RankAdapter,
  chromium: BrowserType,
  given: LaunchOptions,
): Promise<Browser> {
  checkChoice('tabring/playwright', 'adapter', adapter, choices)
  const executablePath = given.executablePath ?? (given.channel ? undefined : findBrowser())
  const flagSets: AdapterChoice[] = adapter === 'auto' ? ['auto', 'software'] : [flagsOf[adapter]]
  const attempts: Attempt[] = []
  for (const flags of flagSets) {
    const args = [...withoutIgnored(browserFlags(flags), given), ...(given.args ?? [])]
    const browser = await chromium.launch({ ...given, executablePath, args })
    try {
      const found = await probeAdapter(browser)
      if (flags === 'software' ? found.kind !== 'none' : found.kind === 'gpu') return browser
      attempts.push({ args, version: browser.version(), found })
    } catch (thrown) {
      await browser.close()
      throw thrown
    }
    await browser.close()
  }
  throw noAdapter(adapter, executablePath ?? given.channel!, attempts)
}

const flagsOf = { gpu: 'auto', software: 'software' } as const

/** Tabring's flags are defaults as Playwright's are: `ignoreDefaultArgs` takes them away. */
function withoutIgnored(flags: readonly string[], { ignoreDefaultArgs }: LaunchOptions): string[] {
  if (ignoreDefaultArgs === true) return []
  const ignored = new Set(ignoreDefaultArgs || [])
  return flags.filter((flag) => !ignored.has(flag))
}

const wanted: Record<RankAdapter, string> = {
  auto: "the machine's GPU or else the software adapter",
  gpu: "the machine's GPU",
  software: 'the software adapter (SwiftShader)',
}

const remedies: Record<RankAdapter, string> = {
  auto: 'Take a newer Chrome or Chromium ("npx playwright install chromium", or TABRING_BROWSER=path), and let launchOptions leave the flags above.',
  gpu: "Install the GPU's driver (on Linux with Vulkan), or compute on the CPU: test.use({ adapter: 'software' }).",
  software:
    'Take a newer Chrome or Chromium ("npx playwright install chromium", or TABRING_BROWSER=path), and let launchOptions leave the flags above.',
}

function noAdapter(adapter: RankAdapter, browser: string, attempts: readonly Attempt[]): GpuError {
  const told = attempts.map(
    ({ args, version, found: { kind, answer } }) =>
      `  ${browser} ${version}: ${kind === 'software' ? 'the software adapter alone' : answer}\n    with ${args.join(' ') || 'no flags'}`,
  )
  const expected = `tabring/playwright: expected a WebGPU adapter, ${wanted[adapter]}, got none.`
  return new GpuError('gpu.unavailable', [expected, ...told, remedies[adapter]].join('\n'))
}
