import type { Browser, BrowserType, LaunchOptions } from 'playwright'
import { GpuError } from '../../src/util/errors.ts'
import { checkChoice } from '../../src/util/options.ts'
import { type FoundAdapter, noGpuNote, probeAdapter } from '../adapter.ts'
import { type AdapterChoice, browserFlags, findBrowser } from '../chromium.ts'
import { chromiumTabs } from '../chromium-tabs.ts'

/**
 * WebGPU adapter on which the pages of a test compute. `auto`: the machine's GPU, or else the software adapter, which runs on the CPU of any
 * machine. `gpu`, `software`: that one, or the test fails.
 */
export type RankAdapter = 'auto' | 'gpu' | 'software'
const choices: readonly RankAdapter[] = ['auto', 'gpu', 'software']

/** A browser that was started to look for an adapter. */
interface Attempt {
  readonly args: readonly string[]
  /** Tabring's flags that the configuration took away. */
  readonly ignored: readonly string[]
  readonly version: string
  readonly found: FoundAdapter
}

/**
 * Returns a browser whose pages get a WebGPU adapter of the kind that is asked for.
 *
 * `given` are the launch options of Playwright's configuration: what they say of the executable and of flags goes before Tabring's own. `note` is
 * called where `auto` becomes the software adapter.
 * errors: `gpu.unavailable` where none comes up, naming browsers, flags and what to do; `browser.missing`.
 */
export async function launchForRanks(
  adapter: RankAdapter,
  chromium: BrowserType,
  given: LaunchOptions,
  note: (line: string) => void,
): Promise<Browser> {
  checkChoice('tabring/playwright', 'adapter', adapter, choices)
  const executablePath = given.executablePath ?? (given.channel ? undefined : findBrowser())
  const flagSets: AdapterChoice[] = adapter === 'auto' ? ['auto', 'software'] : [flagsOf[adapter]]
  const attempts: Attempt[] = []
  for (const flags of flagSets) {
    const all = browserFlags(flags)
    const ignored = all.filter((flag) => isIgnored(flag, given))
    const args = [...all.filter((flag) => !ignored.includes(flag)), ...(given.args ?? [])]
    const browser = await chromium.launch({ ...given, executablePath, args })
    try {
      const found = await probeAdapter(chromiumTabs(browser))
      if (flags === 'software' ? found.kind !== 'none' : found.kind === 'gpu') {
        if (attempts.length > 0) note(noGpuNote.webgpu)
        return browser
      }
      attempts.push({ args, ignored, version: browser.version(), found })
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
const isIgnored = (flag: string, { ignoreDefaultArgs = false }: LaunchOptions): boolean =>
  typeof ignoreDefaultArgs === 'boolean' ? ignoreDefaultArgs : ignoreDefaultArgs.includes(flag)

const wanted: Record<RankAdapter, string> = {
  auto: "the machine's GPU, or else the software adapter",
  gpu: "the machine's GPU",
  software: 'the software adapter (SwiftShader)',
}

const otherBrowser =
  'Use a newer Chrome or Chromium: "npx playwright install chromium", or TABRING_BROWSER=path.'
const remedies: Record<RankAdapter, string> = {
  auto: otherBrowser,
  gpu: "Install the GPU's driver (on Linux with Vulkan), or compute on the CPU: test.use({ adapter: 'software' }).",
  software: otherBrowser,
}

function noAdapter(adapter: RankAdapter, browser: string, attempts: readonly Attempt[]): GpuError {
  const tried = attempts.flatMap(({ args, ignored, version, found: { kind, answer } }) => [
    `  ${browser} ${version}: ${kind === 'software' ? 'only the software adapter' : answer}`,
    `    with ${args.join(' ') || 'no flags'}`,
    ...(ignored.length > 0 ? [`    without ${ignored.join(' ')}`] : []),
  ])
  const problem = `tabring/playwright: no WebGPU adapter came up (wanted: ${wanted[adapter]}).`
  const areIgnored = attempts.some(({ ignored }) => ignored.length > 0)
  const remedy = areIgnored
    ? 'Remove the omitted flags from launchOptions.ignoreDefaultArgs.'
    : remedies[adapter]
  return new GpuError('gpu.unavailable', [problem, ...tried, remedy].join('\n'))
}
